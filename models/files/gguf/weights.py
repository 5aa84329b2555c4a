"""The weights of a GGUF file, dequantized."""

from __future__ import annotations

import logging
import time
from typing import Any

import numpy as np
import torch
from torch import Tensor

from models.files.errors import CheckpointError
from models.files.gguf.architecture import ROPE_FACTORS, set_llama3_rotation
from models.files.gguf.file import GgufFile, names

log = logging.getLogger(__name__)

PROGRESS_S = 5.0
_HEAD = "lm_head.weight"


def read_weights(file: GgufFile, config: Any) -> dict[str, Tensor]:
    """Weights by their names in transformers: float32 if the file has nothing else, otherwise bfloat16.

    Quantized weights have fewer significant bits than bfloat16. The data type, and a rotation that the file describes
    by a tensor, are set in `config`.

    Raises `CheckpointError` with one line for a tensor that the model or the file lacks.
    """
    import gguf
    from transformers import AutoModelForCausalLM
    from transformers.modeling_gguf_pytorch_utils import TENSOR_PROCESSORS, TensorProcessor, get_gguf_hf_weights_map

    config.dtype = torch.bfloat16 if file.is_quantized else torch.float32
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    processor = TENSOR_PROCESSORS.get(file.architecture, TensorProcessor)(config=config.to_dict())
    known = get_gguf_hf_weights_map(model, processor)
    if unknown := file.tensors.keys() - known.keys() - {ROPE_FACTORS}:
        raise CheckpointError(f"its {file.architecture} has {names(unknown)}, which is not implemented")
    weights: dict[str, Tensor] = {}
    told = time.monotonic()
    for number, (name, tensor) in enumerate(file.tensors.items()):
        if time.monotonic() - told > PROGRESS_S:
            told = time.monotonic()
            log.info("still converting: %d of %d tensors", number, len(file.tensors))
        values = gguf.dequantize(tensor.data, tensor.tensor_type)
        if name == ROPE_FACTORS:
            set_llama3_rotation(config, values.copy())
            continue
        values = processor.process(weights=values, name=name, tensor_key_mapping=known, parsed_parameters={}).weights
        weights[known[name]] = torch.from_numpy(np.array(values, copy=True)).to(config.dtype)
    _check_shapes(weights, model, is_tied=config.tie_word_embeddings)
    return weights


def _check_shapes(weights: dict[str, Tensor], model: Any, *, is_tied: bool) -> None:
    expected = {name: list(value.shape) for name, value in model.state_dict().items()}
    if is_tied:
        expected.pop(_HEAD, None)
    if absent := expected.keys() - weights.keys():
        raise CheckpointError(f"it lacks {names(absent)}; fetch it again")
    for name, shape in expected.items():
        if list(weights[name].shape) != shape:
            raise CheckpointError(f"its {name} is {list(weights[name].shape)}, and its keys say {shape}")
