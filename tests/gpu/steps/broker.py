"""Workers with this engine between topics in memory: answers whose worker is killed in their middle are the same.

The broker, the clock and the disk are the simulation's (tests/simulation), the worker's parts are real. Virtual time
stands still while the engine computes.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from typing import Any
from unittest.mock import patch

from app.wire.codec import decode
from app.wire.turn import Turn
from models.checkpoints.loading import load_checkpoint
from models.engine import EngineOptions, TorchEngine
from models.interface.generation import Delta, Job, Stream, StreamEvent
from models.served.paced import PacedEngine, PacedStream, paced
from tests.gpu.report import Report
from tests.gpu.scale import Scale
from tests.simulation.process import Process
from tests.simulation.scenario import Load, Simulation

SEED = 5
"""By which a worker computes eight answers at once."""
TOKENS_PER_S = 10.0
KILLS = (2.5, 6.0, 9.5, 13.0)


class Computed:
    """An engine that runs on an event loop of its own, in real time."""

    def __init__(self, device: str) -> None:
        made = replace(load_checkpoint("demo", device=device), eos=frozenset())
        self.engine = TorchEngine(made, EngineOptions(max_running=32, hang_s=1e12))
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()
        asyncio.run_coroutine_threadsafe(self.engine.start(), self._loop).result()
        self.tokens = self.resumed = 0

    def answers(self, jobs: Sequence[Job]) -> list[Future[list[StreamEvent]]]:
        return [asyncio.run_coroutine_threadsafe(self._read(job), self._loop) for job in jobs]

    async def _read(self, job: Job) -> list[StreamEvent]:
        self.resumed += bool(job.generated)
        events = [event async for event in self.engine.submit([job])[0]]
        self.tokens += sum(len(event.tokens) for event in events if isinstance(event, Delta))
        return events


class ToldStream(PacedStream):
    """Tells in virtual time what the engine has answered."""

    def __init__(self, job: Job, version: str, events: Future[list[StreamEvent]]) -> None:
        super().__init__(job, 1 / TOKENS_PER_S, version)
        self._events = events

    async def __aiter__(self) -> AsyncIterator[StreamEvent]:
        for event in self._events.result():
            await asyncio.wait({self._reason}, timeout=self._pause_s)
            if self._reason.done():
                yield self._end(event.index, self._reason.result())
                return
            self.ended = not isinstance(event, Delta)
            yield event


class ToldEngine(PacedEngine):
    def __init__(self, computed: Computed) -> None:
        super().__init__(TOKENS_PER_S, computed.engine.model_version)
        self._computed = computed

    def submit(self, jobs: Sequence[Job]) -> list[Stream]:
        answers = self._computed.answers(jobs)
        return [ToldStream(job, self.model_version, told) for job, told in zip(jobs, answers, strict=True)]


def run(report: Report, scale: Scale) -> None:
    computed = Computed(report.device)
    begun = time.perf_counter()
    whole = _turns(computed, scale, kills=())
    seconds = time.perf_counter() - begun
    report.write(answers=len(whole), tokens=computed.tokens, seconds=seconds)
    killed = _turns(computed, scale, KILLS)
    differ = [name for name, answer in whole.items() if killed.get(name) != answer]
    report.write(answers=len(killed), kills=len(KILLS), resumed=computed.resumed, differ=len(differ))
    report.fail_unless(len(whole) == len(killed) == scale.answers, "an answer is missing")
    report.fail_unless(computed.resumed > 0, "no kill was in the middle of an answer")
    report.fail_unless(report.device != "cpu" or not differ, f"{len(differ)} answers are others after a kill")


def _turns(computed: Computed, scale: Scale, kills: Sequence[float]) -> dict[str, tuple[str, str]]:
    """The end and the text of each answer."""

    def serving(process: Process, name: str, *names: str) -> Any:
        served = paced(TOKENS_PER_S, name)
        return replace(served, engine=ToldEngine(computed), names=served.names | {*names})

    with patch.object(Process, "_serving", serving):
        simulation = Simulation(SEED, load=Load(requests=0))
        simulation.keep_running(20)
        for at in range(scale.answers):
            asked = {"user_id": f"u{at}", "request_id": f"r{at}", "prompt": f"question {at}", "max_tokens": scale.new}
            value = json.dumps(asked | {"seed": at}).encode()
            user = asked["user_id"]
            simulation.world.after(
                1 + at / 4, lambda user=user, value=value: simulation._append("requests", user, value)
            )
        for number, at in enumerate(kills):
            simulation.world.after(at, lambda: [one.kill() for one in simulation.alive])
            simulation.world.after(at + 1, partial(simulation.start, f"after{number}"))
        simulation.run()
    logs = simulation.broker.logs.items()
    values = [one.value for at, log in logs if at.topic == "turns" for one in log.entries if one.visible and one.value]
    turns = [decode(Turn, value) for value in values]
    return {turn.request_id: (str(turn.finish_reason), turn.answer) for turn in turns}
