"""The config of a GGUF file's model, as transformers has it.

transformers' reader leaves out keys that it does not know, and fills in defaults. A key that is not known here could
change what a model computes, so a file with one is refused.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from models.files.architectures import head_size
from models.files.errors import CheckpointError
from models.files.gguf.file import GgufFile, names

ARCHITECTURES = ("gemma2", "gemma3", "llama", "qwen2", "qwen3")
"""What transformers' reader computes as llama.cpp does, and the engine serves."""
_MODEL_TYPES = {"gemma3": "gemma3_text"}
# 27B: llama.cpp knows them by their number of layers. Their attention is scaled by another size than the head's.
_SCALED_BY_HIDDEN_SIZE = {"gemma2": 46, "gemma3": 62}
_CHECKED = frozenset(
    (
        *("attention.key_length", "attention.value_length", "rope.dimension_count", "rope.freq_base_swa"),
        *("rope.scaling.type", "rope.scaling.factor", "attn_logit_softcapping", "final_logit_softcapping"),
    )
)
_WITHOUT_INFLUENCE = frozenset(("rope.scaling.finetuned", "tensor_data_layout"))
_LLAMA3_FACTORS = (8.0, 32.0)  # 3.1 and 3.3, 3.2
ROPE_FACTORS = "rope_freqs.weight"


def check_architecture(file: GgufFile) -> None:
    """Raises `CheckpointError` with one line for an architecture that would be computed wrongly."""
    if file.architecture not in ARCHITECTURES:
        read = ", ".join(ARCHITECTURES)
        raise CheckpointError(f"its architecture is {file.architecture}, and only {read} are read{_INSTEAD}")
    from transformers.modeling_gguf_pytorch_utils import GGUF_TO_TRANSFORMERS_MAPPING

    known = _CHECKED | _WITHOUT_INFLUENCE | GGUF_TO_TRANSFORMERS_MAPPING["config"][file.architecture].keys()
    if unknown := file.of_architecture().keys() - known:
        raise CheckpointError(f"its {file.architecture} has {names(unknown)}, which is not implemented{_INSTEAD}")


_INSTEAD = (
    "; take the safetensors checkpoint that it was converted from, or serve the file with llama.cpp's llama-server and "
    'name that in the policy file (engine = "openai")'
)


def read_config(file: GgufFile) -> Any:
    """A config of transformers without what belongs to the tokenizer."""
    from transformers import AutoConfig
    from transformers.modeling_gguf_pytorch_utils import GGUF_TO_TRANSFORMERS_MAPPING

    values = file.of_architecture()
    renamed = GGUF_TO_TRANSFORMERS_MAPPING["config"][file.architecture]
    parsed = {renamed[key]: value for key, value in values.items() if renamed.get(key)}
    parsed["tie_word_embeddings"] = "output.weight" not in file.tensors
    parsed.setdefault("vocab_size", len(file.values["tokenizer.ggml.tokens"]))
    if "attention.key_length" in values:
        parsed["head_dim"] = values["attention.key_length"]
    for cap in ("attn_logit_softcapping", "final_logit_softcapping"):
        if cap in values:
            parsed[cap] = values[cap]
    if file.architecture in _SCALED_BY_HIDDEN_SIZE:
        parsed["query_pre_attn_scalar"] = _attention_scale(file.architecture, parsed)
    config = AutoConfig.for_model(_MODEL_TYPES.get(file.architecture, file.architecture), **parsed)
    _check_sizes(config, values)
    _scale_rotation(config, values)
    return config


def _attention_scale(architecture: str, parsed: Mapping[str, Any]) -> int:
    if parsed["num_hidden_layers"] == _SCALED_BY_HIDDEN_SIZE[architecture]:
        return int(parsed["hidden_size"] // parsed["num_attention_heads"])
    return int(parsed["head_dim"])


def _check_sizes(config: Any, values: Mapping[str, Any]) -> None:
    size = head_size(config)
    for key in ("attention.key_length", "attention.value_length", "rope.dimension_count"):
        if values.get(key, size) != size:
            raise CheckpointError(f"its {key} is {values[key]}, and its heads have {size}{_INSTEAD}")
    local = (config.rope_parameters or {}).get("sliding_attention", {}).get("rope_theta")
    if not math.isclose(values.get("rope.freq_base_swa", local or 0.0), local or 0.0):
        raise CheckpointError(f"its rope.freq_base_swa is {values['rope.freq_base_swa']}, not {local}{_INSTEAD}")


def _scale_rotation(config: Any, values: Mapping[str, Any]) -> None:
    kind = values.get("rope.scaling.type", "none")
    if kind == "none":
        return
    if kind != "linear" or "rope.scaling.factor" not in values:
        raise CheckpointError(f"its rope.scaling.type is {kind}, which is not implemented{_INSTEAD}")
    rope = config.rope_parameters
    scaled = rope.get("full_attention", rope)  # in Gemma, layers with a window keep their rotation
    scaled |= {"rope_type": "linear", "factor": float(values["rope.scaling.factor"])}


def set_llama3_rotation(config: Any, factors: Any) -> None:
    """Llama 3.1 and later: `factors` [head size / 2], by which the file divides each frequency of the rotation.

    Raises `CheckpointError` if they are not those of a released Llama.
    """
    import torch
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    theta = config.rope_parameters["rope_theta"]
    size = head_size(config)
    plain = theta ** -(torch.arange(0, size, 2, dtype=torch.float32) / size)
    given = torch.as_tensor(factors, dtype=torch.float32)
    for factor in _LLAMA3_FACTORS:
        config.rope_parameters = {
            "rope_type": "llama3",
            "rope_theta": theta,
            "factor": factor,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192,
        }
        scaled, _ = ROPE_INIT_FUNCTIONS["llama3"](config, torch.device("cpu"))
        if given.shape == scaled.shape and torch.allclose(plain / scaled, given, rtol=1e-4):
            return
    raise CheckpointError(f"its {ROPE_FACTORS} are not those of a Llama 3{_INSTEAD}")
