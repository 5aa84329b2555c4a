"""Parley's engine without Parley: prompt in, tokens out, as any program may use it. Peers and the floor call this."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from dataclasses import dataclass

from app.process.tune_interpreter import tune_interpreter
from models.checkpoints.loading import load_checkpoint
from models.engine import EngineOptions, TorchEngine
from models.interface.generation import Delta, Job, Sampling
from models.prompts.builder import PromptBuilder
from tests.benchmarks.load import Ask


@dataclass(frozen=True, slots=True)
class BareEngine:
    engine: TorchEngine
    prompts: PromptBuilder

    async def answer(self, ask: Ask) -> AsyncIterator[tuple[tuple[int, ...], str]]:
        """Tokens and text of one answer, as they come."""
        prompt = self.prompts.build("", (), ask.prompt)
        job = Job(ask.request_id, prompt.ids, ask.max_tokens, sampling=Sampling(temperature=ask.temperature))
        (stream,) = self.engine.submit([job])
        async for event in stream:
            if isinstance(event, Delta):
                yield event.tokens, event.text

    async def stop(self) -> None:
        await self.engine.stop()


async def open_engine() -> BareEngine:
    """The engine that `BENCH_MODEL`, `BENCH_MAX_RUNNING` and `BENCH_THREADS` ask for, started and warm."""
    checkpoint = load_checkpoint(os.environ["BENCH_MODEL"])
    options = EngineOptions(max_running=int(os.environ["BENCH_MAX_RUNNING"]), threads=int(os.environ["BENCH_THREADS"]))
    engine = TorchEngine(checkpoint, options)
    await engine.start()
    tune_interpreter()
    return BareEngine(engine, PromptBuilder(checkpoint))
