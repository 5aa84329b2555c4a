"""Many answers that sleep for 30 days, on one worker in virtual time: `python -m tests.simulation.many_asleep 10000`.

Half of them wait for tools, half for their time. The worker is there until all of them sleep, for ten minutes on the
tenth day, when one user of twenty is erased, and from the last minutes on, when all of them wake and end. A worker
that is idle for all of the days would take the simulation hours. What it keeps on disk is older than tombstones are
kept when it comes back, so each time it reads all rows anew.
"""

from __future__ import annotations

import gc
import sys
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from unittest.mock import patch

from app.delivery.partition import State
from app.policy.file import Policy, WaitRules
from tables.asleep import heads
from tests.faults.load import TOOLS
from tests.simulation import clients, group, world
from tests.simulation.scenario import Conditions
from tests.simulation.test_directed import Course

DAY_S = 86_400.0
USERS = 20
_PER_S = 20
_RULES = WaitRules(park_after_s=0.05, per_user=100_000, per_tenant=100_000)


@dataclass
class Seen:
    """At each look: answers asleep, records of `requests` that are not committed, and answers that memory has."""

    asleep: list[int] = field(default_factory=list)
    behind: list[int] = field(default_factory=list)
    in_memory: list[int] = field(default_factory=list)
    erased_s: float = -1.0
    turns: int = 0
    taken_over_s: list[float] = field(default_factory=list)
    memory_mb: list[float] = field(default_factory=list)
    """What the worker has, without its log and its disk, which are in this process, too."""


class Many(Course):
    def __init__(self, days: int) -> None:
        super().__init__(Policy(waits=_RULES), Conditions(ttl_s=60 * DAY_S, sleeps_after_s=0.05))
        self.days = days
        self.seen = Seen()

    def ask(self, number: int) -> None:
        at = 1.0 + number / _PER_S
        said: dict[str, Any] = {"prompt": f"question {number}", "max_tokens": 1, "conversation_id": f"c{number}"}
        if number % 2:
            said["not_before"] = int((self.simulation.began + at + self.days * DAY_S) * 1000)
        else:
            said |= {"tools": TOOLS, "tool_mode": "kafka", "tool_timeout_ms": int(self.days * DAY_S * 1000)}
        self.send(at, user=f"u{number // 2 % USERS}", request_id=f"r{number}", **said)

    def when_there(self, happens: Callable[[], None], since: float | None = None) -> None:
        """As soon as the worker owns its partition, and has read what it had to read again."""
        since = self.simulation.world.now if since is None else since
        partition = self.simulation.alive[0].partitions[0] if self.simulation.alive[0].partitions else None
        if partition is None or partition.state is not State.OWNED or partition.ownership.recovered:
            self.after(0.1, lambda: self.when_there(happens, since))
            return
        self.seen.taken_over_s.append(round(self.simulation.world.now - since, 1))
        happens()

    def look(self) -> None:
        worker = self.simulation.alive[0].worker
        ownership = worker.partitions.all[0].ownership
        offsets, decided = ownership.offsets["requests"], ownership.sleepers.under_way
        due = worker.features.tools.calls_of(ownership).schedule._due
        self.seen.asleep.append(sum(1 for _ in heads(ownership.store)))
        self.seen.behind.append(offsets.next - (offsets.head() or 0))
        self.seen.in_memory.append(len(decided) + len(ownership.inflight_requests) + len(due))

    def leave(self, back_at: float, then: Callable[[], None]) -> None:
        before = _python_mb()
        process = self.simulation.alive[0]
        process.kill()
        if before:
            del process.worker
            self.seen.memory_mb.append(round(before - _python_mb(), 1))
        self.after(back_at - self.simulation.world.now + self.simulation.began, partial(self._back, then))

    def _back(self, then: Callable[[], None]) -> None:
        self.simulation.start_again("w0")
        self.when_there(then)

    def erase(self) -> None:
        self.look()
        self.send(1.0, "controls", user="u0", type="erase")
        self.after(1.1, lambda: self.until_erased(self.simulation.world.now))

    def until_erased(self, since: float) -> None:
        store = self.simulation.alive[0].worker.partitions.all[0].ownership.store
        if next(heads(store, "u0"), None) is None:
            self.seen.erased_s = round(self.simulation.world.now - since, 1)
        else:
            self.after(0.1, partial(self.until_erased, since))


def _python_mb() -> float:
    """What Python has in this process; 0 if it does not count that."""
    if not tracemalloc.is_tracing():
        return 0.0
    gc.collect()
    return tracemalloc.get_traced_memory()[0] / 1e6


def run(answers: int, days: int = 30, there_s: float = 600.0) -> Seen:
    """`there_s`: how long the worker is there on the day of the erasure."""
    many, asleep_at = Many(days), 10.0 + answers / _PER_S
    for number in range(answers):
        many.ask(number)
    third, last = days * DAY_S / 3, days * DAY_S - 30.0 - answers / 100

    def on_the_day() -> None:
        many.erase()
        many.after(there_s - 1.0, many.look)
        many.after(there_s, partial(many.leave, last, lambda: None))

    many.after(asleep_at, many.look)
    many.after(asleep_at + 1.0, partial(many.leave, third, on_the_day))
    many.simulation.keep_running(days * DAY_S + 2 * asleep_at)
    with (
        patch.object(world, "_MOST_STEPS", 10**9),
        patch.object(clients, "_MOST_READ", 1000),
        patch.object(group, "_LOOK_S", 5.0),
    ):
        many.run()
    many.seen.turns = len(many.turns())
    return many.seen


if __name__ == "__main__":
    if "memory" in sys.argv:
        tracemalloc.start()
    began = time.monotonic()
    print(run(int(sys.argv[1])), f"{time.monotonic() - began:.0f} s")
