"""The config of a checkpoint that is built like Llama, or is a Gemma 3 of texts alone.

A key that is not known here could change what a model computes, so a config with one is left to transformers. So is one
with an unknown kind of rotary embedding, one that lacks a value, because the defaults are transformers' to know, and
one with a value of another type, which transformers refuses.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import torch

from models.files.architectures import is_size

CLASSES = {
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
}
"""transformers' class of each kind that is built like Llama."""
GEMMA, _GEMMA_CLASS = "gemma3_text", "Gemma3ForCausalLM"
GELU = "gelu_pytorch_tanh"
_NEEDED = frozenset(
    (
        *("hidden_act", "hidden_size", "intermediate_size", "max_position_embeddings", "num_attention_heads"),
        *("num_hidden_layers", "num_key_value_heads", "rms_norm_eps", "tie_word_embeddings", "vocab_size"),
    )
)
_SIZES = _NEEDED - {"hidden_act", "rms_norm_eps", "tie_word_embeddings"}
# Without an influence on the logits: training, generation, and how the checkpoint was written.
_IGNORED = frozenset(
    (
        *("_name_or_path", "architectures", "attention_dropout", "bos_token_id", "dtype", "eos_token_id"),
        *("initializer_range", "model_type", "pad_token_id", "pretraining_tp", "torch_dtype", "transformers_version"),
        "use_cache",
    )
)
_COMMON = _NEEDED | _IGNORED | {"head_dim", "rope_parameters", "rope_scaling", "rope_theta"}
_QWEN = _COMMON | {"layer_types", "max_window_layers", "sliding_window", "use_sliding_window"}
_KNOWN = {
    "llama": _COMMON | {"attention_bias", "mlp_bias"},
    "mistral": _COMMON | {"sliding_window"},
    "qwen2": _QWEN,
    "qwen3": _QWEN | {"attention_bias"},
}
_SWITCHES = ("attention_bias", "mlp_bias", "tie_word_embeddings", "use_cache", "use_sliding_window")
_GEMMA_OWN = frozenset(("head_dim", "query_pre_attn_scalar", "sliding_window"))
_GEMMA_NEEDED = _NEEDED - {"hidden_act", "tie_word_embeddings"} | _GEMMA_OWN
_GEMMA_OFF = frozenset(("attn_logit_softcapping", "final_logit_softcapping", "rope_scaling"))
_GEMMA_SWITCHES = frozenset(("attention_bias", "use_bidirectional_attention"))
_GEMMA_KNOWN = frozenset(
    (
        *(_GEMMA_NEEDED | _IGNORED | _GEMMA_OFF | _GEMMA_SWITCHES),
        *("_sliding_window_pattern", "cache_implementation", "hidden_activation", "layer_types", "rope_parameters"),
        *("rope_local_base_freq", "rope_theta", "sliding_window_pattern", "tie_word_embeddings"),
    )
)
_FULL, _SLIDING = "full_attention", "sliding_attention"
_ROPE_KEYS = {
    "default": frozenset(("rope_theta", "rope_type")),
    "linear": frozenset(("rope_theta", "rope_type", "factor")),
    "llama3": frozenset(
        ("rope_theta", "rope_type", "factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings")
    ),
}


@dataclass(frozen=True, slots=True)
class LlamaConfig:
    """Fields that transformers has, too, have its names, by which the engine reads them.

    `windows` holds the sliding window of each layer, None where a layer attends to everything. `layer_types` are given
    where kinds of layers have rotary embeddings of their own: `rope_parameters` are by kind then.
    """

    model_type: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    rms_norm_eps: float
    max_position_embeddings: int
    rope_parameters: dict[str, Any]
    tie_word_embeddings: bool
    eos_token_id: int | list[int] | None
    dtype: torch.dtype
    windows: tuple[int | None, ...]
    qkv_bias: bool
    out_bias: bool
    mlp_bias: bool
    scaling: float
    hidden_act: str = "silu"
    hidden_activation: str = ""
    layer_types: tuple[str, ...] = ()
    final_logit_softcapping: float | None = None

    @property
    def is_gemma(self) -> bool:
        return self.model_type == GEMMA

    @property
    def has_head_norms(self) -> bool:
        return self.model_type in {"qwen3", GEMMA}

    @property
    def ropes(self) -> dict[str, dict[str, Any]]:
        """The parameters by kind of layer; of the kind "" if there is one for all."""
        if not self.layer_types:
            return {"": self.rope_parameters}
        return {kind: self.rope_parameters[kind] for kind in sorted(set(self.layer_types))}

    def get_text_config(self) -> Self:
        return self


def read_config(folder: Path) -> LlamaConfig | None:
    """The config of the checkpoint in `folder`, or None if transformers has to load it."""
    try:
        written = json.loads((folder / "config.json").read_text())
        if not isinstance(written, dict):
            return None
        return _gemma(written) if written["model_type"] == GEMMA else _config(written)
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None  # transformers says what is wrong with it


def _config(written: dict[str, Any]) -> LlamaConfig | None:
    kind = written["model_type"]
    if kind not in CLASSES or written.get("architectures") != [CLASSES[kind]]:
        return None
    rope = _rope(written)
    fits = _NEEDED <= written.keys() <= _KNOWN[kind] and all(written[key] is not None for key in _NEEDED)
    if not fits or rope is None or written["hidden_act"] != "silu":
        return None
    if not _has_types(written):
        return None
    attention_bias = written.get("attention_bias", False)
    head_dim = written.get("head_dim") or _head_dim(kind, written)
    return LlamaConfig(
        **{key: written[key] for key in _NEEDED},
        model_type=kind,
        head_dim=head_dim,
        scaling=head_dim**-0.5,
        rope_parameters=rope,
        eos_token_id=written.get("eos_token_id"),
        dtype=_dtype(written),
        windows=tuple(_window(kind, written, layer) for layer in range(written["num_hidden_layers"])),
        qkv_bias=kind == "qwen2" or attention_bias,
        out_bias=attention_bias,
        mlp_bias=written.get("mlp_bias", False),
    )


def _gemma(written: dict[str, Any]) -> LlamaConfig | None:
    """That of Gemma 3, whose published configs leave out more: what is left out here is as transformers has it."""
    fits = _GEMMA_NEEDED <= written.keys() <= _GEMMA_KNOWN and written.get("architectures") == [_GEMMA_CLASS]
    is_off = all(written.get(key) is None for key in _GEMMA_OFF)
    is_plain = all(written.get(key) is None or written[key] is False for key in _GEMMA_SWITCHES)
    if not (fits and is_off and is_plain and _has_types(written) and all(is_size(written[key]) for key in _GEMMA_OWN)):
        return None
    ropes, kinds = _gemma_ropes(written), _gemma_kinds(written)
    if ropes is None or not kinds or written.get("hidden_activation", GELU) != GELU:
        return None
    return LlamaConfig(
        **{key: written[key] for key in _NEEDED & _GEMMA_NEEDED},
        model_type=GEMMA,
        head_dim=written["head_dim"],
        scaling=written["query_pre_attn_scalar"] ** -0.5,
        rope_parameters=ropes,
        tie_word_embeddings=written.get("tie_word_embeddings", True),
        eos_token_id=written.get("eos_token_id"),
        dtype=_dtype(written),
        windows=tuple(written["sliding_window"] if kind == _SLIDING else None for kind in kinds),
        qkv_bias=False,
        out_bias=False,
        mlp_bias=False,
        hidden_act="",
        hidden_activation=GELU,
        layer_types=kinds,
    )


def _gemma_kinds(written: dict[str, Any]) -> tuple[str, ...]:
    """Of each layer; () where one is not known."""
    count, every = written["num_hidden_layers"], written.get("sliding_window_pattern", 6)
    if not is_size(every):
        return ()
    repeated = [_FULL if number % every == 0 else _SLIDING for number in range(1, count + 1)]
    kinds = tuple(repeated if written.get("layer_types") is None else written["layer_types"])
    return kinds if len(kinds) == count and {_FULL, _SLIDING} >= set(kinds) else ()


def _gemma_ropes(written: dict[str, Any]) -> dict[str, dict[str, Any]] | None:
    """By kind of layer. Older configs have two bases instead."""
    bases = {_FULL: written.get("rope_theta"), _SLIDING: written.get("rope_local_base_freq")}
    given = written.get("rope_parameters") or {
        kind: {"rope_type": "default", "rope_theta": base} for kind, base in bases.items()
    }
    return given if set(given) == set(bases) and all(map(_is_known_rope, given.values())) else None


def _dtype(written: dict[str, Any]) -> torch.dtype:
    dtype: torch.dtype = getattr(torch, written.get("dtype") or written.get("torch_dtype") or "float32")
    return dtype


def _has_types(written: dict[str, Any]) -> bool:
    """Raises `KeyError` without an end, of which the families have different defaults."""
    window, head, eos = written.get("sliding_window"), written.get("head_dim"), written["eos_token_id"]
    tokens = [one for one in (written.get("bos_token_id"), written.get("pad_token_id")) if one is not None]
    tokens += eos if isinstance(eos, list) else [] if eos is None else [eos]
    return (
        all(is_size(written[key]) for key in _SIZES)
        and all(is_size(one) for one in (window, head) if one is not None)
        and all(isinstance(written.get(key, False), bool) for key in _SWITCHES)
        and all(type(one) is int for one in (*tokens, written.get("max_window_layers", 0)))
        and isinstance(written.get("layer_types") or [], list)
        and isinstance(written["rms_norm_eps"], int | float)
    )


def _head_dim(kind: str, written: dict[str, Any]) -> int:
    size: int = 128 if kind == "qwen3" else written["hidden_size"] // written["num_attention_heads"]
    return size


def _rope(written: dict[str, Any]) -> dict[str, Any] | None:
    """In transformers' present form: older checkpoints have the base beside the other parameters.

    None for one in both forms, among which transformers chooses.
    """
    if written.get("rope_parameters") and written.get("rope_scaling"):
        return None
    rope = dict(written.get("rope_parameters") or written.get("rope_scaling") or {})
    kind = rope.pop("type", "default")
    rope.setdefault("rope_type", kind)
    rope.setdefault("rope_theta", written.get("rope_theta"))
    return rope if _is_known_rope(rope) else None


def _is_known_rope(rope: dict[str, Any]) -> bool:
    numbers = (value for key, value in rope.items() if key != "rope_type")
    return _ROPE_KEYS.get(rope["rope_type"]) == rope.keys() and all(type(one) in {int, float} for one in numbers)


def _window(kind: str, written: dict[str, Any], layer: int) -> int | None:
    window: int | None = written.get("sliding_window")
    if kind == "mistral":
        return written["sliding_window"]
    if kind == "llama" or not written.get("use_sliding_window"):
        return None
    if kinds := written.get("layer_types"):
        return window if kinds[layer] == "sliding_attention" else None
    return window if layer >= written["max_window_layers"] else None
