"""Attention over packed tokens and a paged cache, as a plug for the decoders of transformers.

Every decoder that calls its attention through transformers' `AttentionInterface` works unchanged: its layers see one
sequence of packed tokens, and here each token meets only the row it belongs to. Registered without a mask function, so
that no mask is made outside.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface

from models.engine.batch import Batch, Group
from models.engine.cache import KVCache

NAME = "parley_paged"
# What some models hand to their attention beside the usual: to leave it out would be silently wrong.
NOT_IMPLEMENTED = ("s_aux", "sinks", "position_bias", "head_mask", "alibi")


@dataclass(frozen=True, slots=True)
class Context:
    """What one forward needs: the batch and the cache."""

    batch: Batch
    cache: KVCache


@dataclass(frozen=True, slots=True)
class Scores:
    """How queries and keys make scores."""

    scale: float
    window: int | None
    cap: float | None


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
        raise NotImplementedError("this model's attention takes something that the engine does not implement")
    scores = Scores(scaling or query.shape[3] ** -0.5, sliding_window, softcap)
    query, key, value = (each[0].transpose(0, 1) for each in (query, key, value))
    return attend(query, key, value, module.layer_idx, context, scores).unsqueeze(0), None


def attend(query: Tensor, key: Tensor, value: Tensor, layer: int, context: Context, scores: Scores) -> Tensor:
    """`query` is [T, heads, size], `key` and `value` [T, KV heads, size]; the result is as `query`."""
    keys, values = context.cache.keys[layer], context.cache.values[layer]
    slots = context.batch.slots
    keys.view(-1, *keys.shape[2:]).index_copy_(0, slots, key)
    values.view(-1, *values.shape[2:]).index_copy_(0, slots, value)
    parts = []
    for group in context.batch.groups:
        span = slice(group.first, group.first + group.rows * group.width)
        if group.table is not None:
            parts.append(_in_place(query[span], keys, values, group, scores))
            continue
        if group.pages is None:
            seen = key[span].transpose(0, 1).unsqueeze(0), value[span].transpose(0, 1).unsqueeze(0)
        else:
            seen = _gather(context.cache, keys, group, 0), _gather(context.cache, values, group, 1)
        parts.append(_attend(query[span], *seen, group, scores))
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def _in_place(query: Tensor, keys: Tensor, values: Tensor, group: Group, how: Scores) -> Tensor:
    from models.engine.paged_decode import paged_decode  # noqa: PLC0415  Triton is only there where a GPU may be

    assert group.table is not None
    assert group.lengths is not None
    return paged_decode(
        query, keys, values, group.table, group.lengths, scale=how.scale, window=how.window, cap=how.cap
    )


def _gather(cache: KVCache, pages: Tensor, group: Group, place: int) -> Tensor:
    """What the rows of a group attend: [rows, KV heads, length, size]; valid until the next call for `place`."""
    assert group.pages is not None
    found = cache.scratch(place, len(group.pages))
    torch.index_select(pages, 0, group.pages, out=found)
    return found.view(group.rows, group.length, *pages.shape[2:]).transpose(1, 2)


def _attend(query: Tensor, key: Tensor, value: Tensor, group: Group, scores: Scores) -> Tensor:
    """`query` and the result are [tokens, heads, size], `key` and `value` [rows, KV heads, length, size]."""
    if scores.cap is not None:
        return _capped(query, key, value, group, scores)
    return dense(query, key, value, group.mask_where_needed(scores.window), group.width, scores.scale)


def dense(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, width: int, scale: float) -> Tensor:
    """As `_attend`, for `width` tokens of each row; without a mask a chunk attends itself. TorchScript compiles it."""
    tokens, heads, size = query.size(0), query.size(1), query.size(2)
    if width == 1:
        # the heads that share keys become rows of one product: nothing is repeated
        asked = query.reshape(tokens, key.size(1), -1, size)
        out = scaled_dot_product_attention(asked, key, value, attn_mask=mask, scale=scale)
        return out.reshape(tokens, heads, size)
    out = scaled_dot_product_attention(
        query.transpose(0, 1).unsqueeze(0),
        key,
        value,
        attn_mask=mask,
        is_causal=mask is None,
        scale=scale,
        enable_gqa=heads != key.size(1),
    )
    return out[0].transpose(0, 1)


def _capped(query: Tensor, key: Tensor, value: Tensor, group: Group, how: Scores) -> Tensor:
    """With soft-capped scores (Gemma 2), which no fused kernel of torch has."""
    tokens, heads, size = query.shape
    kv = key.shape[1]
    rows = query.view(group.rows, group.width, kv, heads // kv, size).permute(0, 2, 3, 1, 4)
    scores = rows @ key.unsqueeze(2).transpose(3, 4) * how.scale
    assert how.cap is not None
    scores = (scores / how.cap).tanh() * how.cap + group.mask(how.window).unsqueeze(2)
    out = scores.softmax(dim=-1, dtype=torch.float32).to(value.dtype) @ value.unsqueeze(2)
    return out.permute(0, 3, 1, 2, 4).reshape(tokens, heads, size)


AttentionInterface.register(NAME, paged_attention)
