"""A model whose forward no CUDA graph can capture: its answers are those of before."""

from __future__ import annotations

import asyncio
import dataclasses
from unittest.mock import patch

from models.compute.graphs import DecodeGraphs
from models.engine import EngineOptions, TorchEngine
from models.interface.generation import Job, Sampling
from tests.gpu.models import tokens_of
from tests.gpu.report import Report
from tests.gpu.scale import Scale
from tests.unit.models import tiny


def run(report: Report, scale: Scale) -> None:
    whole = asyncio.run(_answer(report.device))
    capture = DecodeGraphs.capture

    def capture_badly(graphs: DecodeGraphs) -> None:
        forward = graphs._forward
        graphs._forward = lambda batch: (forward(batch), forward(batch).sum().item())[0]
        try:
            capture(graphs)
        finally:
            graphs._forward = forward

    with patch.object(DecodeGraphs, "capture", capture_badly):
        after = asyncio.run(_answer(report.device))
    report.write(tokens=len(after), same=whole == after)
    report.fail_unless(whole == after, "an answer is another one after a capture that failed")


async def _answer(device: str) -> list[int]:
    made = tiny.checkpoint()
    made = dataclasses.replace(made, model=made.model.to(device))
    engine = TorchEngine(made, EngineOptions(max_running=4))
    await engine.start()
    (tokens,) = await tokens_of(engine, [Job("a", tuple(range(10, 60)), 30, sampling=Sampling(0.0))])
    await engine.stop()
    return tokens
