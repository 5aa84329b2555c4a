"""Answers of the demo's model alone, among others, and resumed in their middle: how many differ.

On a CPU none may. On a GPU nothing is promised, and this is the figure.
"""

from __future__ import annotations

import asyncio
import dataclasses

from models.checkpoints.loading import load_checkpoint
from models.engine import EngineOptions, TorchEngine
from models.interface.generation import Job, Sampling
from tests.gpu.models import tokens_of
from tests.gpu.report import Report
from tests.gpu.scale import Scale


def run(report: Report, scale: Scale) -> None:
    asyncio.run(_measure(report, scale))


async def _measure(report: Report, scale: Scale) -> None:
    made = dataclasses.replace(load_checkpoint("demo", device=report.device), eos=frozenset())
    engine = TorchEngine(made, EngineOptions(max_running=32))
    await engine.start()
    others = 0
    for heat in (0.0, 0.8):
        alone = [(await tokens_of(engine, [one]))[0] for one in _jobs(scale, "alone", heat)]
        together = await tokens_of(engine, _jobs(scale, "together", heat))
        halves = [one[: scale.new // 2] for one in alone]
        rest = await tokens_of(engine, _jobs(scale, "resumed", heat, halves))
        resumed = [[*half, *more] for half, more in zip(halves, rest, strict=True)]
        differ = [sum(a != b for a, b in zip(alone, these, strict=True)) for these in (together, resumed)]
        others += sum(differ)
        of = {"version": made.model_version, "temperature": heat, "answers": len(alone)}
        report.write(**of, differ_among_others=differ[0], differ_resumed=differ[1])
    await engine.stop()
    report.fail_unless(report.device != "cpu" or not others, f"{others} answers depend on what is beside them")


def _jobs(scale: Scale, tag: str, heat: float, halves: list[list[int]] | None = None) -> list[Job]:
    """Each has a user of its own, who shares no prefix."""
    return [
        Job(
            f"{tag}{at}",
            tuple(5 + (31 * at + 7 * n * n) % 3000 for n in range(20 + at)),
            scale.new,
            generated=tuple(halves[at]) if halves else (),
            sampling=Sampling(heat, seed=at),
            user=f"{tag}{at}",
        )
        for at in range(scale.answers)
    ]
