"""Which models the engine computes correctly, according to their config.

The engine feeds packed tokens of many requests through the model's own layers. Everything that mixes tokens must
therefore go through transformers' attention interface, and nothing may depend on the rest of the batch.
`models.engine.probe` measures what the config does not show.
"""

from __future__ import annotations

from typing import Any

ATTENTION_KINDS = frozenset({"full_attention", "sliding_attention"})
# Rotary embeddings that depend on the longest position of a batch: correct only up to the trained length.
LENGTH_DEPENDENT_ROPE = frozenset({"dynamic", "longrope"})
UNBOUNDED = 1 << 20
_SIZES = ("num_hidden_layers", "num_attention_heads", "hidden_size", "vocab_size")


def why_unsupported(config: Any) -> str | None:
    """One line that says why a model with this config is rejected, or None."""
    kind = getattr(config, "model_type", "model")
    if getattr(config, "is_encoder_decoder", False):
        return f"{kind} is an encoder-decoder; the engine runs decoders only"
    if hasattr(config, "vision_config") or hasattr(config, "audio_config"):
        return f"{kind} is multimodal; use a text-only checkpoint of it"
    if getattr(config, "num_hidden_layers", None) is None or getattr(config, "num_attention_heads", None) is None:
        return f"{kind} is not a decoder with attention layers that the engine supports"
    if wrong := next((name for name in _SIZES if not is_size(getattr(config, name, None))), None):
        return f"config.json: {wrong}={getattr(config, wrong, None)!r} is not a number of at least 1; fetch it again"
    attention = _attention_not_implemented(config)
    return f"{kind} {attention}, which the engine does not implement" if attention else None


def is_size(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _attention_not_implemented(config: Any) -> str | None:
    try:
        head_size(config), kv_heads(config)
    except (AttributeError, RuntimeError):  # transformers' way of saying that it depends on the layer
        return "has a different head size in some layers"
    if getattr(config, "kv_lora_rank", None):
        return "uses multi-head latent attention"
    if getattr(config, "use_bidirectional_attention", False) or getattr(config, "is_causal", True) is False:
        return "attends in both directions"
    if other := set(getattr(config, "layer_types", None) or ()) - ATTENTION_KINDS:
        return f"has layers of kind {', '.join(sorted(other))}"
    return None


def context_limit(config: Any) -> int:
    """Most tokens that are computed correctly."""
    limit = int(getattr(config, "max_position_embeddings", None) or UNBOUNDED)
    for parameters in _ropes(config):
        if parameters.get("rope_type") in LENGTH_DEPENDENT_ROPE:
            original = parameters.get("original_max_position_embeddings") or getattr(
                config, "original_max_position_embeddings", None
            )
            limit = min(limit, int(original or limit))
    return limit


def rope_depends_on_length(config: Any) -> bool:
    """Whether some rotary embedding reads the positions before it computes its angles."""
    return any(parameters.get("rope_type") in LENGTH_DEPENDENT_ROPE for parameters in _ropes(config))


def _ropes(config: Any) -> list[dict[str, Any]]:
    rope = getattr(config, "rope_parameters", None) or {}
    return [rope, *(value for value in rope.values() if isinstance(value, dict))]


def head_size(config: Any) -> int:
    return int(getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads)


def kv_heads(config: Any) -> int:
    return int(getattr(config, "num_key_value_heads", None) or config.num_attention_heads)


def kv_bytes_per_token(config: Any, bytes_per_number: int) -> int:
    return 2 * int(config.num_hidden_layers) * kv_heads(config) * head_size(config) * bytes_per_number
