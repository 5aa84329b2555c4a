"""Which attention the layers of a model compute: the engine's, or their own.

Every decoder that calls its attention through transformers' `AttentionInterface` works unchanged. The implementation is
registered without a mask function, so that transformers builds no mask.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor

from models.compute.attention import Context
from models.llama import LlamaDecoder

_NAME = "parley_paged"
# Further arguments that some models pass to their attention; ignoring them would give silently wrong results.
NOT_IMPLEMENTED = ("s_aux", "sinks", "position_bias", "head_mask", "alibi")


def use_paged_attention(model: Any) -> None:
    """Let `model` attend through the `context` of each call."""
    if not isinstance(model, LlamaDecoder):  # which does so whenever it gets one
        from transformers import AttentionInterface  # takes seconds

        AttentionInterface.register(_NAME, paged_attention)
        model.set_attn_implementation(_NAME)


@contextmanager
def own_attention(model: Any) -> Iterator[None]:
    """Within the block, `model` attends by itself, and its calls have no `context`."""
    if isinstance(model, LlamaDecoder):
        yield
        return
    model.set_attn_implementation("eager")
    try:
        yield
    finally:
        use_paged_attention(model)


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
