"""Attention over packed tokens and a paged KV cache.

The layers of a model see one sequence of packed tokens, and here each token attends only to the sequence it belongs to.
The arguments of `attend` have types that TorchScript compiles (forward.py).

A token's attention differs in its last bits between a chunk and a single token, and between neighbours: sums are taken
in another order. Where numbers are rounded behind it, such a bit decides how, and after some layers the logits of a
real model differ by 5 %. On a CPU attention is therefore `exact`: computed in float64 and rounded, so that no order
shows. Kernels (models/kernels/attention.py) have an order of their own. On a GPU a last bit may depend on the batch.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.jit import is_scripting  # type: ignore[attr-defined]
from torch.nn.functional import scaled_dot_product_attention

from models.compute.batch import StepInputs
from models.compute.cache import KVCache


class Context:
    """The inputs of one forward: the batch and the cache, and its groups in the form that `attend` takes."""

    def __init__(self, batch: StepInputs, cache: KVCache) -> None:
        self.exact = cache.keys[0].device.type == "cpu"
        self.batch = batch
        self.cache = cache
        self.groups = [list(group) for group in batch.groups]
        self._masks: dict[tuple[int | None, bool], list[Tensor | None]] = {}

    @property
    def scratch(self) -> list[Tensor]:
        """Where pages are gathered."""
        return self.cache.scratch(max((group.pages for group in self.batch.groups if not group.in_place), default=0))

    @property
    def windows(self) -> set[int | None]:
        """The sliding windows that the layers have requested so far."""
        return {window for window, _ in self._masks}

    def masks(self, window: int | None, *, whole: bool) -> list[Tensor | None]:
        """See `masks_of`; the layers of one step share them."""
        key = window, whole
        if key not in self._masks:
            positions, dtype = self.batch.positions, torch.float64 if self.exact else self.cache.keys[0].dtype
            self._masks[key] = masks_of(positions, self.groups, window, whole, dtype)
        return self._masks[key]

    def attend(
        self,
        layer: int,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        *,
        scale: float,
        window: int | None = None,
        cap: float | None = None,
    ) -> Tensor:
        """See the function `attend`; `layer` is the number of a layer."""
        return attend(
            query, key, value, self.cache.keys[layer], self.cache.values[layer], self.batch.numbers, self.batch.count,
            self.groups, self.masks(window, whole=cap is not None), self.scratch, scale, window, cap, self.exact,
        )  # fmt: skip


def attend(
    query: Tensor, key: Tensor, value: Tensor, keys: Tensor, values: Tensor, numbers: Tensor, count: int,
    groups: list[list[int]], masks: list[Tensor | None], scratch: list[Tensor],
    scale: float, window: int | None, cap: float | None, exact: bool,
) -> Tensor:  # fmt: skip
    """`query` and the result are [T, heads, size], `key` and `value` [T, KV heads, size]; `keys` and `values` a layer's
    cache; `numbers`, `count` and `groups` those of a `StepInputs`; `masks` for each group what is added to its scores.
    """
    heads, size = keys.size(2), keys.size(3)
    slots = numbers[2 * count : 3 * count]
    key, value = key.to(keys.dtype), value.to(keys.dtype)
    keys.view(-1, heads, size).index_copy_(0, slots, key)
    values.view(-1, heads, size).index_copy_(0, slots, value)
    parts: list[Tensor] = []
    for at, group in enumerate(groups):
        first, rows, width, _length, begin, count_of_pages, in_place = group
        end = first + rows * width
        pages = numbers[begin : begin + count_of_pages]
        # Merged with the next condition, TorchScript would compile the guarded code.
        if not is_scripting():  # noqa: SIM102
            if in_place:
                table, positions = pages.view(rows, -1), numbers[count + first : count + end]
                by = _single_tokens if width == 1 else _chunk
                parts.append(by(query[first:end], keys, values, table, positions, scale, window, cap))
                continue
        if count_of_pages == 0:
            group_keys = key[first:end].transpose(0, 1).unsqueeze(0)
            group_values = value[first:end].transpose(0, 1).unsqueeze(0)
        else:
            torch.index_select(keys, 0, pages, out=scratch[0][:count_of_pages])
            torch.index_select(values, 0, pages, out=scratch[1][:count_of_pages])
            group_keys = scratch[0][:count_of_pages].view(rows, -1, heads, size).transpose(1, 2)
            group_values = scratch[1][:count_of_pages].view(rows, -1, heads, size).transpose(1, 2)
        mask, asked = masks[at], query[first:end]
        if exact:
            asked, group_keys, group_values = asked.double(), group_keys.double(), group_values.double()
        if cap is not None and mask is not None:
            found = capped(asked, group_keys, group_values, mask, width, scale, cap)
        else:
            found = dense(asked, group_keys, group_values, mask, width, scale)
        parts.append(found.to(query.dtype))
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def masks_of(
    positions: Tensor, groups: list[list[int]], window: int | None, whole: bool, dtype: torch.dtype
) -> list[Tensor | None]:
    """For each group, the mask added to its scores [rows, 1, width, length]: 0 where a token attends, -inf elsewhere.

    None where the kernel needs no mask and, unless `whole`, where a chunk attends only to itself and to all of itself.
    """
    masks: list[Tensor | None] = []
    for first, rows, width, length, _begin, pages, in_place in groups:
        alone = pages == 0 and width > 1 and (window is None or width <= window)
        if in_place != 0 or (alone and not whole):
            masks.append(None)
            continue
        at = torch.arange(length, device=positions.device)
        own = positions[first : first + rows * width].view(rows, width, 1)
        hidden = at > own
        if window is not None:
            hidden = hidden | (at <= own - window)
        mask = torch.zeros(hidden.size(), dtype=dtype, device=positions.device)
        masks.append(mask.masked_fill_(hidden, -math.inf).unsqueeze(1))
    return masks


def dense(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, width: int, scale: float) -> Tensor:
    """`query` and the result are [tokens, heads, size], `width` tokens of each row; `key` and `value` [rows, KV heads,
    length, size]. Without a mask a chunk attends itself.
    """
    tokens, heads, size = query.size(0), query.size(1), query.size(2)
    if width == 1:
        # heads that share keys become rows of one product, so nothing is repeated
        asked = query.reshape(tokens, key.size(1), -1, size)
        out = scaled_dot_product_attention(asked, key, value, attn_mask=mask, scale=scale)
        return out.reshape(tokens, heads, size)
    if query.is_cuda and mask is not None and heads != key.size(1):
        # The kernel that takes any mask takes no shared heads, and without it all scores would be held in float32.
        key = key.repeat_interleave(heads // key.size(1), 1)
        value = value.repeat_interleave(heads // value.size(1), 1)
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


def capped(query: Tensor, key: Tensor, value: Tensor, mask: Tensor, width: int, scale: float, cap: float) -> Tensor:
    """Like `dense`, with soft-capped scores (Gemma 2), which no fused kernel of torch supports."""
    tokens, heads, size = query.size(0), query.size(1), query.size(2)
    kv = key.size(1)
    rows = query.reshape(tokens // width, width, kv, heads // kv, size).permute(0, 2, 3, 1, 4)
    scores = torch.matmul(rows, key.unsqueeze(2).transpose(3, 4)) * scale
    scores = torch.tanh(scores / cap) * cap + mask.unsqueeze(2)
    if scores.dtype != torch.float64:
        scores = scores.to(torch.float32)
    out = torch.matmul(scores.softmax(dim=-1).to(value.dtype), value.unsqueeze(2))
    return out.permute(0, 3, 1, 2, 4).reshape(tokens, heads, size)


def _chunk(
    query: Tensor, keys: Tensor, values: Tensor, table: Tensor, positions: Tensor,
    scale: float, window: int | None, cap: float | None,
) -> Tensor:  # fmt: skip
    from models.compute.paged_chunk import paged_chunk

    assert cap is None, "torch's attention over pages has no soft cap"
    return paged_chunk(query, keys, values, table, positions, scale=scale, window=window)


def _single_tokens(
    query: Tensor, keys: Tensor, values: Tensor, table: Tensor, positions: Tensor,
    scale: float, window: int | None, cap: float | None,
) -> Tensor:  # fmt: skip
    from models.compute.paged_decode import paged_decode  # Triton is only there where a GPU may be

    return paged_decode(query, keys, values, table, positions, scale=scale, window=window, cap=cap)
