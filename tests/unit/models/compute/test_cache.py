"""The size of the KV cache, and the memory that it takes."""

from __future__ import annotations

import mmap

import psutil
import pytest
import torch
from transformers import LlamaConfig

from models.compute.cache import LEAST_ON_CPU, MOST_ON_CPU, KVCache, bytes_per_page, pages_that_fit

CPU = torch.device("cpu")
PAGE = 1 << 20
MIB = 1 << 20


@pytest.mark.parametrize(
    ("weights", "context", "wanted", "expected"),
    [
        (600 * MIB, 10, 10_000, 600),  # as much as the weights
        (4 * MIB, 10, 10_000, LEAST_ON_CPU // PAGE),  # a small model's is no smaller than that
        (600 * MIB, 1000, 10_000, 1001),  # one answer has its whole context
        (600 * MIB, 10, 100, 100),  # not more than can be used
        (16_000 * MIB, 10, 10_000, MOST_ON_CPU // PAGE),
        (600 * MIB, 5000, 10_000, MOST_ON_CPU // PAGE),
    ],
)
def test_a_cpus_cache_has_a_size_by_the_weights(weights: int, context: int, wanted: int, expected: int) -> None:
    assert pages_that_fit(PAGE, CPU, 0, 0.85, wanted, context=context, weights=weights) == expected


def test_a_size_that_is_set_holds() -> None:
    assert pages_that_fit(PAGE, CPU, 3.0, 0.85, 10, context=10, weights=MIB) == 3072


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_memory_is_taken_as_it_is_written_and_no_more_than_was_said(dtype: torch.dtype) -> None:
    config = LlamaConfig(hidden_size=256, num_attention_heads=4, num_key_value_heads=4, num_hidden_layers=2)
    pages = 64 * MIB // bytes_per_page(config, dtype)

    def grown() -> int:
        return psutil.Process().memory_info().rss - before

    before = psutil.Process().memory_info().rss
    cache = KVCache(config, pages, CPU, dtype)
    assert grown() < 16 * MIB
    assert not any(tensor[-1].any() for tensor in (*cache.keys, *cache.values))
    for tensor in (*cache.keys, *cache.values):
        tensor.fill_(1.0)
    assert 48 * MIB < grown() < 80 * MIB + mmap.PAGESIZE
