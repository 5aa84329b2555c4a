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
from models.compute.cache import KVCache, pages_that_fit
from models.compute.graphs import DecodeGraphs
from models.compute.pages import PagePool
from models.engine.runner import Runner
from tests.unit.models import tiny
from tests.unit.models.engine.sequences import sequences_of, slices_of

KERNEL = "models.compute.paged_decode"
CPU = torch.device("cpu")


def no_compiler(*_: Any, **__: Any) -> Tensor:
    raise RuntimeError("Failed to find C compiler. Please specify via CC environment variable.\nand more")


def gathered(query: Tensor, keys: Tensor, values: Tensor, table: Tensor, _lengths: Tensor, **_: Any) -> Tensor:
    return gpu_ways._gathered(query, keys, values, table)


def wrong(query: Tensor, *_: Any, **__: Any) -> Tensor:
    return torch.zeros_like(query)


def plugged(monkeypatch: pytest.MonkeyPatch, kernel: Any) -> KVCache:
    module = ModuleType(KERNEL)
    module.paged_decode = kernel  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, KERNEL, module)
    return KVCache(tiny.model().config, 20, CPU, torch.float32)


@pytest.mark.parametrize(
    ("kernel", "reason"),
    [(no_compiler, "Failed to find C compiler"), (wrong, "its results are others"), (gathered, None)],
)
def test_a_kernel_is_tried_before_it_is_used(monkeypatch: pytest.MonkeyPatch, kernel: Any, reason: str | None) -> None:
    found = gpu_ways.why_no_paged_kernel(plugged(monkeypatch, kernel), 4)
    assert (found is None) == (reason is None)
    assert (found or "").startswith(reason or "")


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
