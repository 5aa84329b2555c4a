"""Load a checkpoint that is built like Llama, or a Gemma 3."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors import safe_open
from torch import Tensor

from models.llama.config import LlamaConfig
from models.llama.decoder import LlamaDecoder
from models.llama.gemma import GemmaDecoder

_HEAD, _EMBEDDING = "lm_head.weight", "model.embed_tokens.weight"


def load_llama(folder: Path, config: LlamaConfig, dtype: torch.dtype, device: torch.device) -> LlamaDecoder | None:
    """The decoder in `folder`, with weights in `dtype`.

    None if its files lack a weight, have one of another shape, or a head of their own though it is tied: transformers
    knows more forms of a checkpoint, and its loading report says what is wrong with a broken one.
    """
    model = (GemmaDecoder if config.is_gemma else LlamaDecoder)(config, device)
    expected = {name: tensor.shape for name, tensor in model.state_dict().items()}
    if config.tie_word_embeddings:
        del expected[_HEAD]
    weights = _weights(folder, expected, dtype, device)
    if weights is None:
        return None
    if config.tie_word_embeddings:
        if not _is_tied(folder, weights[_EMBEDDING]):
            return None
        weights[_HEAD] = weights[_EMBEDDING]
    model.load_state_dict(weights, assign=True)
    if config.tie_word_embeddings:
        model.lm_head.weight = model.model.embed_tokens.weight  # one parameter, as in transformers
    model.to(device, dtype)  # buffers that no file has
    return model


def _is_tied(folder: Path, embedding: Tensor) -> bool:
    """Whether the files have no head, or one that is the embedding: after a fine-tuning it may have become another."""
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, framework="pt", device=str(embedding.device)) as file:
            if _HEAD in file.keys() and not torch.equal(file.get_tensor(_HEAD).to(embedding.dtype), embedding):  # noqa: SIM118
                return False
    return True


def _weights(
    folder: Path, expected: dict[str, torch.Size], dtype: torch.dtype, device: torch.device
) -> dict[str, Tensor] | None:
    """Copies, so that they do not change with the file; of an embedding see models/weights/embedding.py."""
    weights: dict[str, Tensor] = {}
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, framework="pt", device=str(device)) as file:
            for name in filter(expected.__contains__, file.keys()):
                if tuple(file.get_slice(name).get_shape()) != tuple(expected[name]) or name in weights:
                    return None
                tensor = file.get_tensor(name)
                if not tensor.is_floating_point():
                    return None
                weights[name] = tensor.to(dtype, copy=True)
    return weights if weights.keys() == expected.keys() else None
