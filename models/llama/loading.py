"""Load a checkpoint that is built like Llama."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors import safe_open
from torch import Tensor

from models.llama.config import LlamaConfig
from models.llama.decoder import LlamaDecoder

_HEAD, _EMBEDDING = "lm_head.weight", "model.embed_tokens.weight"


def load_llama(folder: Path, config: LlamaConfig, dtype: torch.dtype, device: torch.device) -> LlamaDecoder | None:
    """The decoder in `folder`, with weights in `dtype`.

    None if its files lack a weight or have one of another shape: transformers knows more forms of a checkpoint, and its
    loading report says what is wrong with a broken one.
    """
    model = LlamaDecoder(config, device)
    expected = {name: tensor.shape for name, tensor in model.state_dict().items()}
    if config.tie_word_embeddings:
        del expected[_HEAD]
    weights = _weights(folder, expected, dtype, device)
    if weights is None:
        return None
    if config.tie_word_embeddings:
        weights[_HEAD] = weights[_EMBEDDING]
    model.load_state_dict(weights, assign=True)
    return model


def _weights(
    folder: Path, expected: dict[str, torch.Size], dtype: torch.dtype, device: torch.device
) -> dict[str, Tensor] | None:
    """Copies, so that they do not change with the file."""
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
