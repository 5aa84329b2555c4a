"""The engine's attention as an attention implementation for transformers.

Every decoder that calls its attention through transformers' `AttentionInterface` works unchanged. The implementation is
registered without a mask function, so that transformers builds no mask.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor
from transformers import AttentionInterface

from models.compute.attention import Context

NAME = "parley_paged"
# Further arguments that some models pass to their attention; ignoring them would give silently wrong results.
NOT_IMPLEMENTED = ("s_aux", "sinks", "position_bias", "head_mask", "alibi")


def paged_attention(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,  # noqa: ARG001  transformers' signature; always None
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    context: Context | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """`query` is [1, heads, T, size], `key` and `value` [1, KV heads, T, size]; the result [1, T, heads, size]."""
    if context is None or any(others.get(name) is not None for name in NOT_IMPLEMENTED):
        raise NotImplementedError("this model's attention uses a feature that the engine does not implement")
    query, key, value = (each[0].transpose(0, 1) for each in (query, key, value))
    scale = scaling or query.shape[2] ** -0.5
    out = context.attend(module.layer_idx, query, key, value, scale=scale, window=sliding_window, cap=softcap)
    return out.unsqueeze(0), None


AttentionInterface.register(NAME, paged_attention)
