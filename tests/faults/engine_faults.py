"""Faults of the engine under the whole stream; the plugs are in engine_plugs.py."""

from __future__ import annotations

from dataclasses import dataclass

from tests.faults.arena import Arena
from tests.faults.faults import Fault, KillInside, KillWorker

EXIT_FAILED = 1


@dataclass(frozen=True)
class AnswerFails:
    """The engine fails one answer and goes on: that one ends in `engine_error`, and its neighbours notice nothing."""

    plug: str
    name: str

    async def inflict(self, arena: Arena) -> None:
        name = arena.any()
        arena.workers.pop(name).kill()
        arena.watch.interrupted()
        arena.errors_due["engine_error"] += 1
        arena.start(name, (self.plug, arena.random.randint(20, 60)))
        await arena.failed()


KILLS: tuple[tuple[float, Fault], ...] = (
    (1.0, KillWorker()),
    (3.0, KillInside("kill_after_token", 120)),
    (1.0, KillInside("kill_in_transaction", 20)),
)
OTHERS: tuple[Fault, ...] = (
    AnswerFails("engine_out_of_memory", "engine out of memory"),
    AnswerFails("engine_not_finite", "logits not finite"),
    KillInside("engine_hangs", 60, EXIT_FAILED),
    KillInside("engine_dies", 60, EXIT_FAILED),
)
