"""Attention of single tokens over the pages of a GPU's KV cache, as two Triton kernels.

Nothing is copied out of the pages, and nothing about the batch is compiled in: page tables and positions are read from
tensors, so the same launch can be captured in a CUDA graph and replayed for other rows. What a row attends is cut into
`SPLITS` segments that are computed in parallel and joined by the second one, because a single row would leave most of a
GPU idle.
"""

# ruff: noqa: ANN001, ANN202, N803  a Triton kernel takes no annotations but constexpr, and those are capitals

from __future__ import annotations

from typing import Any, cast

import torch
import triton
import triton.language as tl
from torch import Tensor

SPLITS = 16
BLOCK = 64
WIDEST = 512  # bytes of a token's keys in one head; with more, the tiles of a block do not fit into shared memory


# Offsets and widths of a step's tables change from step to step; they must not trigger a recompilation.
@triton.jit(do_not_specialize=["row_pages"], do_not_specialize_on_alignment=["positions", "table"])
def _attend_stretch(  # type: ignore[no-untyped-def]
    query, keys, values, table, positions, out, weights, scale, window, cap, row_pages,
    SHARED: tl.constexpr, SIZE: tl.constexpr, PAGE: tl.constexpr, HEADS: tl.constexpr, SPLITS: tl.constexpr,
    BLOCK_HEADS: tl.constexpr, BLOCK_SIZE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row, head, split = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    length = tl.load(positions + row) + 1
    lowest = tl.maximum(length - window, 0)
    stretch = tl.cdiv(tl.cdiv(length - lowest, SPLITS), BLOCK) * BLOCK
    first = lowest + split * stretch
    end = tl.minimum(first + stretch, length)

    shared = tl.arange(0, BLOCK_HEADS)
    size = tl.arange(0, BLOCK_SIZE)
    at_query = ((row * HEADS + head) * SHARED + shared[:, None]) * SIZE + size[None, :]
    inside = (shared[:, None] < SHARED) & (size[None, :] < SIZE)
    q = tl.load(query + at_query, mask=inside, other=0.0)
    most = tl.full([BLOCK_HEADS], -1e30, tl.float32)
    total = tl.zeros([BLOCK_HEADS], tl.float32)
    sum_ = tl.zeros([BLOCK_HEADS, BLOCK_SIZE], tl.float32)
    for begin in range(first, end, BLOCK):
        at = begin + tl.arange(0, BLOCK)
        visible = at < end
        page = tl.load(table + row * row_pages + at // PAGE, mask=visible, other=0)
        base = ((page * PAGE + at % PAGE) * HEADS + head) * SIZE
        mask = visible[:, None] & (size[None, :] < SIZE)
        k = tl.load(keys + base[:, None] + size[None, :], mask=mask, other=0.0)
        v = tl.load(values + base[:, None] + size[None, :], mask=mask, other=0.0)
        scores = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
        if cap > 0:
            bent = 2.0 / (1.0 + tl.exp(-2.0 * scores / cap)) - 1.0  # tanh
            scores = bent * cap
        scores = tl.where(visible[None, :], scores, -1e30)
        new = tl.maximum(most, tl.max(scores, 1))
        share = tl.where(visible[None, :], tl.exp(scores - new[:, None]), 0.0)
        faded = tl.exp(most - new)
        sum_ = sum_ * faded[:, None] + tl.dot(share.to(v.dtype), v, input_precision="ieee")
        total = total * faded + tl.sum(share, 1)
        most = new
    heads = (row * HEADS + head) * SHARED + shared
    some = total > 0
    total = tl.where(some, total, 1.0)
    tl.store(weights + heads * SPLITS + split, tl.where(some, most + tl.log(total), -1e30), mask=shared < SHARED)
    to = (heads[:, None] * SPLITS + split) * SIZE + size[None, :]
    tl.store(out + to, sum_ / total[:, None], mask=inside)


@triton.jit
def _join_stretches(  # type: ignore[no-untyped-def]
    out, weights, joined, SIZE: tl.constexpr, SPLITS: tl.constexpr, BLOCK_SIZE: tl.constexpr,
):  # fmt: skip
    head = tl.program_id(0)
    split, size = tl.arange(0, SPLITS), tl.arange(0, BLOCK_SIZE)
    weight = tl.load(weights + head * SPLITS + split)
    share = tl.exp(weight - tl.max(weight, 0))
    parts = tl.load(out + (head * SPLITS + split[:, None]) * SIZE + size[None, :], mask=size[None, :] < SIZE, other=0.0)
    whole = tl.sum(parts * share[:, None], 0) / tl.sum(share, 0)
    tl.store(joined + head * SIZE + size, whole.to(joined.dtype.element_ty), mask=size < SIZE)


def paged_decode(
    query: Tensor, keys: Tensor, values: Tensor, table: Tensor, positions: Tensor, *,
    scale: float, window: int | None = None, cap: float | None = None, splits: int = SPLITS,
) -> Tensor:  # fmt: skip
    """`query` [rows, heads, size] over [pages, page size, KV heads, size]; `table` [rows, n]; each row is the token at
    its place of `positions` [rows] and attends to all up to itself. `splits` is a power of two.
    """
    rows, heads, size = query.shape
    page, kv = keys.shape[1], keys.shape[2]
    shared = heads // kv
    out = torch.empty(rows, heads, splits, size, dtype=torch.float32, device=query.device)
    weights = torch.empty(rows, heads, splits, dtype=torch.float32, device=query.device)
    kernel: Any = _attend_stretch
    block_size = max(16, triton.next_power_of_2(size))
    kernel[(rows, kv, splits)](
        query.contiguous(), keys, values, table, positions, out, weights, scale, window or 1 << 30, cap or 0.0,
        table.stride(0), SHARED=shared, SIZE=size, PAGE=page, HEADS=kv, SPLITS=splits,
        BLOCK_HEADS=max(16, triton.next_power_of_2(shared)), BLOCK_SIZE=block_size,
        BLOCK=BLOCK if block_size * keys.element_size() <= WIDEST else BLOCK // 2, enable_fp_fusion=True,
    )  # fmt: skip
    joined, join = torch.empty(query.shape, dtype=query.dtype, device=query.device), cast(Any, _join_stretches)
    join[(rows * heads,)](out, weights, joined, SIZE=size, SPLITS=splits, BLOCK_SIZE=block_size, enable_fp_fusion=True)
    return joined
