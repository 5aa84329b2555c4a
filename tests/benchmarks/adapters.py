"""Tokens a second with answers of many LoRA adapters in one batch, against the same answers of the model alone."""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from pathlib import Path

from models.checkpoints.loading import Checkpoint
from models.engine import EngineOptions, TorchEngine
from models.interface.generation import Job, Sampling
from tests.unit.models import lora

ADAPTERS = 8
RANK = 16
AT_ONCE = 32


async def compare(made: Checkpoint, threads: int, new_tokens: int = 32, rounds: int = 3) -> None:
    with tempfile.TemporaryDirectory() as folder:
        files = [lora.save(Path(folder) / f"a{n}", made.model, n, rank=RANK) for n in range(ADAPTERS)]
        engine = TorchEngine(made, EngineOptions(max_running=AT_ONCE, threads=threads), adapters=files)
        await engine.start()
        spent: dict[int, list[float]] = {0: [], 1: [], ADAPTERS: []}
        for number in range(rounds + 1):  # the first loads the adapters and is not counted
            for mixed, seconds in spent.items():
                names = [f"a{at % mixed}" if mixed else "" for at in range(AT_ONCE)]
                taken = await _time(engine, names, new_tokens, number)
                if number:
                    seconds.append(taken)
        rates = {mixed: AT_ONCE * new_tokens / statistics.median(seconds) for mixed, seconds in spent.items()}
        print(
            f"{AT_ONCE} at once, rank {RANK} in every layer: {rates[0]:.0f} tok/s without adapter, {rates[1]:.0f} "
            f"({rates[1] / rates[0]:.2f}x) with one, {rates[ADAPTERS]:.0f} ({rates[ADAPTERS] / rates[0]:.2f}x) with "
            f"{ADAPTERS} mixed in each step"
        )
        await engine.stop()


async def _time(engine: TorchEngine, names: list[str], new_tokens: int, seed: int) -> float:
    jobs = [
        Job(str(at), tuple(range(5 + seed + at, 37 + seed + at)), new_tokens, sampling=Sampling(0.0), adapter=name)
        for at, name in enumerate(names)
    ]
    begun = time.perf_counter()
    await asyncio.gather(*(_read(stream) for stream in engine.submit(jobs)))
    return time.perf_counter() - begun


async def _read(stream: object) -> None:
    async for _ in stream:  # type: ignore[attr-defined]
        pass
