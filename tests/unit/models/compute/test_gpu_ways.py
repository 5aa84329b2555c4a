"""What a GPU's machine lacks is left out with one line, and answers are computed all the same. Failures are plugged."""

from __future__ import annotations

import logging
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from models.compute import gpu_ways
from models.compute.attention import Context
from models.compute.batch import pack
from models.compute.cache import KVCache, pages_that_fit
from models.compute.graphs import DecodeGraphs
from models.compute.pages import PagePool
from models.engine.runner import Runner
from models.engine.sequence import ScheduledChunk
from tests.unit.models import tiny
from tests.unit.models.engine.sequences import sequences_of, slices_of

KERNEL = "models.compute.paged_decode"
CHUNKS = "models.compute.paged_chunk"
CPU = torch.device("cpu")


def no_compiler(*_: Any, **__: Any) -> Tensor:
    raise RuntimeError("Failed to find C compiler. Please specify via CC environment variable.\nand more")


def gathered(*given: Tensor, window: int | None = None, **_: Any) -> Tensor:
    *numbers, positions = given
    return gpu_ways.gathered(gpu_ways._Numbers(*numbers), (positions + 1).tolist(), window)


def wrong(query: Tensor, *_: Any, **__: Any) -> Tensor:
    return torch.zeros_like(query)


def plugged(monkeypatch: pytest.MonkeyPatch, kernel: Any) -> KVCache:
    """For single tokens and for chunks."""
    for name in (KERNEL, CHUNKS):
        module = ModuleType(name)
        setattr(module, name.rpartition(".")[2], kernel)
        monkeypatch.setitem(sys.modules, name, module)
    return KVCache(tiny.model().config, 20, CPU, torch.float32)


@pytest.mark.parametrize(
    ("kernel", "reason"),
    [(no_compiler, "Failed to find C compiler"), (wrong, "its results are others"), (gathered, None)],
)
def test_a_kernel_is_tried_before_it_is_used(monkeypatch: pytest.MonkeyPatch, kernel: Any, reason: str | None) -> None:
    cache = plugged(monkeypatch, kernel)
    for found in (gpu_ways.why_no_paged_kernel(cache, 4), gpu_ways.why_no_paged_chunks(cache, 4)):
        assert (found is None) == (reason is None)
        assert (found or "").startswith(reason or "")


def test_a_way_that_ignores_windows_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    cache = plugged(monkeypatch, lambda *given, window, **_: gathered(*given))
    assert gpu_ways.why_no_paged_chunks(cache, 4) is not None


@pytest.mark.parametrize("window", [None, 9])
def test_chunks_over_pages_attend_what_gathered_ones_do(monkeypatch: pytest.MonkeyPatch, window: int | None) -> None:
    plugged(monkeypatch, gathered)
    config, pool = tiny.model().config, PagePool(40, 16)
    sequences = sequences_of((50, 41), pool)
    slices = [ScheduledChunk(one, 20, len(one.tokens) - 20) for one in sequences]
    chance = torch.Generator().manual_seed(3)
    query, key, value = (
        torch.randn(51, heads, 16, generator=chance)
        for heads in (config.num_attention_heads, config.num_key_value_heads, config.num_key_value_heads)
    )
    results = []
    for paged in (True, False):
        cache = KVCache(config, 40, CPU, torch.float32)
        for number, kept in enumerate((cache.keys[0], cache.values[0])):
            kept.copy_(torch.randn(kept.shape, generator=torch.Generator().manual_seed(number)))
        batch = pack(slices, pool, CPU, kernel=paged, paged_chunks=paged)
        assert [bool(group.in_place) for group in batch.groups] == [paged, paged]
        results.append(Context(batch, cache).attend(0, query, key, value, scale=0.25, window=window))
    torch.testing.assert_close(results[0], results[1], rtol=1e-5, atol=1e-5)


def test_a_chunk_is_no_step_of_a_graph() -> None:
    pool = PagePool(40, 16)
    (sequence,) = sequences_of((40,), pool)
    batch = pack([ScheduledChunk(sequence, 36, 4)], pool, CPU, kernel=True, paged_chunks=True)
    graphs = DecodeGraphs(lambda batch: torch.zeros(batch.count, 1), CPU, 8, 3)
    graphs._graphs = dict.fromkeys(graphs._buckets)  # type: ignore[assignment]
    assert graphs.run(batch) is None


def test_a_machine_without_triton_has_no_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    cache = plugged(monkeypatch, wrong)
    monkeypatch.setitem(sys.modules, KERNEL, None)
    assert "paged_decode" in (gpu_ways.why_no_paged_kernel(cache, 4) or "")


def test_without_its_kernel_a_gpu_gathers_pages_and_says_so_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    made, pool = tiny.checkpoint(), PagePool(100, 16)
    runner = Runner(made, plugged(monkeypatch, no_compiler), pool)
    runner.cache = KVCache(made.model.config, 100, CPU, torch.float32)
    slices = slices_of(sequences_of((40, 20), pool))
    monkeypatch.setattr(runner, "device", SimpleNamespace(type="cuda"))
    assert not runner._kernel
    monkeypatch.setattr(runner, "device", CPU)
    batch = runner.pack(slices)
    assert not any(group.in_place for group in batch.groups)
    assert torch.isfinite(runner.forward(batch)).all()
    lines = [record.getMessage() for record in caplog.records if "Triton" in record.getMessage()]
    assert len(lines) == 1
    assert lines[0].endswith("costs time: Failed to find C compiler. Please specify via CC environment variable.")


def test_a_capture_that_fails_leaves_no_graph_and_the_stream_of_before(monkeypatch: pytest.MonkeyPatch) -> None:
    streams = ["before"]

    class Capture:
        def __init__(self, *_: object, stream: str, **__: object) -> None:
            self.stream = stream

        def __enter__(self) -> None:
            streams.append(self.stream)

        def __exit__(self, *_: object) -> None:
            if len(calls) > 5:  # as torch's, which ends the capture before it gives the stream back
                raise RuntimeError("operation failed due to a previous error during capture")
            streams.append("before")

    def forward(batch: Any) -> Tensor:
        calls.append(batch.count)
        if len(calls) > 5:
            raise RuntimeError("operation not permitted when stream is capturing")
        return torch.zeros(batch.count, 1)

    calls: list[int] = []
    for name, fake in {
        "current_stream": lambda _: streams[-1],
        "set_stream": streams.append,
        "synchronize": lambda _: None,
        "Stream": lambda device: f"of {device}",
        "CUDAGraph": lambda: SimpleNamespace(pool=lambda: "pool"),
        "graph": Capture,
    }.items():
        monkeypatch.setattr(torch.cuda, name, fake)
    graphs = DecodeGraphs(forward, CPU, 4, 2)
    with pytest.raises(RuntimeError, match="previous error"):
        graphs.capture()
    assert streams[-1] == "before"
    assert "of cpu" in streams
    assert not graphs._graphs


def test_the_largest_step_leaves_its_memory_free_and_a_failure_of_it_is_told(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("set_device", "reset_peak_memory_stats", "empty_cache"):
        monkeypatch.setattr(torch.cuda, name, lambda *_: None)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda _: 1000)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda _: 5000)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (100_000, 200_000))
    device = torch.device("cuda")
    assert gpu_ways.memory_of(device, lambda: None) == 4000
    assert caplog.text == ""

    def full() -> None:
        raise torch.OutOfMemoryError("CUDA out of memory.\nmore")

    assert gpu_ways.memory_of(device, full) == 0
    assert "CUDA out of memory" in caplog.text
    left = [pages_that_fit(10, device, 0, 0.85, 5, context=3, weights=1, spare=spare) for spare in (0, 40_000, 200_000)]
    assert left == [8500, 6000, 4]


@pytest.mark.parametrize("context_length", [40, 128])
def test_the_largest_step_needs_one_page(context_length: int) -> None:
    made = tiny.checkpoint()
    runner = Runner(made, KVCache(made.model.config, 1, CPU, torch.float32), PagePool(1, 16))
    counts: list[int] = []
    forward = runner.forward
    runner.forward = lambda batch: counts.append(batch.count) or forward(batch)  # type: ignore[method-assign,func-returns-value]
    runner.compute_largest(64, context_length, 3)
    assert counts == [min(64, context_length)]
