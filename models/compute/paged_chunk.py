"""Attention of a chunk behind a prefix over the pages of a GPU's KV cache, by torch's own `varlen_attn`.

Nothing is gathered and there is no mask, so its memory does not grow with the prefix. `num_splits=1` is documented to
make a row's bits independent of the batch.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.attention.varlen import varlen_attn


def paged_chunk(
    query: Tensor, keys: Tensor, values: Tensor, table: Tensor, positions: Tensor, *, scale: float, window: int | None
) -> Tensor:
    """`query` [tokens, heads, size] over [pages, page size, KV heads, size]; `table` [1, n], `positions` [tokens]."""
    count = len(query)
    begins = torch.arange(0, 2 * count, count, dtype=torch.int32, device=query.device)
    attended = varlen_attn(
        query.contiguous(),
        keys,
        values,
        begins,
        None,
        count,
        table.shape[1] * keys.shape[1],
        scale=scale,
        window_size=(-1 if window is None else window - 1, 0),
        enable_gqa=query.shape[1] != keys.shape[2],
        seqused_k=(positions[-1:] + 1).int(),
        block_table=table.int(),
        num_splits=1,
    )
    assert isinstance(attended, Tensor)
    return attended
