"""The memory of the KV cache: keys and values of every layer, in pages of consecutive tokens."""

from __future__ import annotations

import math
import mmap
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from models.files.architectures import head_size, kv_bytes_per_token, kv_heads

PAGE_SIZE = 16
GIB = 1 << 30
MOST_ON_CPU, LEAST_ON_CPU = 2 * GIB, GIB // 4
SHARE_OF_FREE_GPU = 0.85
MOST_PAGES = 1 << 17
"""Beyond what is needed: two million tokens, whose bookkeeping takes a tenth of a second to scan."""


class KVCache:
    """`keys[layer]` and `values[layer]` are [pages, page size, KV heads, head size]. A CPU's take memory as they are
    written.
    """

    def __init__(self, config: Any, pages: int, device: torch.device, dtype: torch.dtype) -> None:
        shape = (pages, PAGE_SIZE, kv_heads(config), head_size(config))
        layers = range(config.num_hidden_layers)
        # zeros, not empty: a masked position still takes part in a product, and NaN times zero is NaN
        self.keys = [_zeros(shape, device, dtype) for _ in layers]
        self.values = [_zeros(shape, device, dtype) for _ in layers]
        self.pages = pages
        self._scratch = [self.keys[0].new_empty((0, *shape[1:])) for _ in range(2)]

    def scratch(self, pages: int) -> list[Tensor]:
        """Memory for keys and values of at least `pages` pages; the same list is reused while it is large enough.

        Allocating it each time costs as much as the copy.
        """
        if len(self._scratch[0]) < pages:
            self._scratch = [self.keys[0].new_empty((max(64, 2 * pages), *self.keys[0].shape[1:])) for _ in range(2)]
        return self._scratch

    def scrub(self, pages: Sequence[int]) -> None:
        """Clear pages that may contain non-finite numbers."""
        if pages:
            for tensor in (*self.keys, *self.values):
                tensor[torch.tensor(pages, device=tensor.device)] = 0


def bytes_per_page(config: Any, dtype: torch.dtype) -> int:
    return PAGE_SIZE * kv_bytes_per_token(config, dtype.itemsize)


def _zeros(shape: tuple[int, ...], device: torch.device, dtype: torch.dtype) -> Tensor:
    if device.type != "cpu":
        return torch.zeros(shape, device=device, dtype=dtype)
    number = math.prod(shape)
    untouched = mmap.mmap(-1, max(1, number * dtype.itemsize))
    return torch.frombuffer(untouched, dtype=dtype, count=number).view(shape)


def pages_that_fit(
    page: int,
    device: torch.device,
    gib: float,
    share: float,
    wanted: int,
    *,
    context: int,
    weights: int,
    spare: int = 0,
) -> int:
    """Pages of so many bytes for `gib`. With 0, on a GPU: what `share` of its free memory has room for, more than is
    `wanted`, so that prefixes stay; `spare` bytes are left for a step, unless an answer of the whole `context` needs
    them. On a CPU: `wanted`, but at most as many bytes as the `weights` take or a quarter of a GiB, and at most 2 GiB;
    if one answer of the whole `context` needs more, the pages of that.
    """
    if gib:
        return int(gib * GIB) // page
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return min(max(wanted, MOST_PAGES), int(free * share) // page, max((free - spare) // page, context + 1))
    pages = max(max(weights, LEAST_ON_CPU) // page, context + 1)
    return min(wanted, pages, MOST_ON_CPU // page)
