"""The pauses between the tokens of readers while long prompts come in, alone and beside a busy event loop."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import statistics
import sys
import time

from models.engine import EngineOptions, TorchEngine
from models.interface.generation import Job, Sampling
from tests.gpu.models import checkpoint, prompts, read_times, times_of
from tests.gpu.report import Report
from tests.gpu.scale import Scale

READERS, PROMPTS = 32, 6
SWITCH_S = 0.0005
"""Of app/process/tune_interpreter.py, which a worker does."""


def run(report: Report, scale: Scale) -> None:
    sys.setswitchinterval(SWITCH_S)
    for busy in (False, True):
        asyncio.run(_measure(report, scale, busy=busy))


async def _measure(report: Report, scale: Scale, *, busy: bool) -> None:
    shape, *_ = scale.shapes
    made = checkpoint(scale, shape, report.device, 4 * scale.prompt)
    gib = 8.0 if not scale.is_tiny else 0.05
    engine = TorchEngine(made, EngineOptions(max_running=READERS + PROMPTS, kv_cache_gb=gib))
    await engine.start()
    burner = asyncio.create_task(_burn()) if busy else None
    short = prompts(READERS, scale.prompt // 8, made.model.config.vocab_size, seed=3)
    jobs = [Job(str(at), one, 4 * scale.new, sampling=Sampling(0.7, seed=at)) for at, one in enumerate(short)]
    reading = [asyncio.create_task(read_times(stream)) for stream in engine.submit(jobs)]
    await asyncio.sleep(0.3)
    begun = time.perf_counter()
    await times_of(engine, prompts(PROMPTS, 3 * scale.prompt, made.model.config.vocab_size, seed=4), 2)
    ended = time.perf_counter()
    gaps = [
        after - before
        for times in await asyncio.gather(*reading)
        for before, after in itertools.pairwise(times)
        if after >= begun and before <= ended
    ]
    if burner is not None:
        burner.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await burner
    await engine.stop()
    hundredths = statistics.quantiles(gaps or [0.0, 0.0], n=100)
    report.write(
        busy_loop=busy,
        prompts_s=ended - begun,
        gap_p50_ms=1e3 * hundredths[49],
        gap_p99_ms=1e3 * hundredths[98],
        gaps=len(gaps),
    )


async def _burn() -> None:
    while True:
        json.dumps(list(range(2000)))
        await asyncio.sleep(0)
