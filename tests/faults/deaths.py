"""How long answers pause when their worker's process dies, with a watcher and without.

Two workers with the defaults share the partitions; the one has a watcher, the other has none. They are killed in turn
while they compute, so both ways see one Kafka, one load and one machine. A killed worker starts again once all its
answers go on elsewhere. The pause is what a reader of `tokens` sees between the last event of the dead owner and the
first of its successor.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import defaultdict
from pathlib import Path

from app.settings import Settings
from app.watch.brake import MOST, WITHIN_S
from tests.faults.load import Load
from tests.faults.verdict import Verdict, judge
from tests.faults.watch import Watch
from tests.faults.worker_process import WorkerProcess

WAYS = ("off", "child")
_LONGEST_S = 60.0
_APART_S = WITHIN_S / MOST + 1.0
"""Between deaths of one way: they are single ones, for which a watcher always leaves (app/watch/brake.py)."""
_ON_ITS_WAY_S = 0.3
"""What the dead have written is read after this time, and is not what goes on."""


def question(number: int, user: str) -> dict[str, object]:
    """An answer of fifteen seconds."""
    return {"prompt": f"question {number} of {user}", "max_tokens": 300}


class Deaths:
    """`pauses` are those of single answers, in seconds by way."""

    def __init__(self, settings: Settings, folder: Path, seed: int) -> None:
        self._settings = settings
        self._folder = folder
        self._chance = random.Random(seed)
        self._workers: dict[str, WorkerProcess] = {}
        self.pauses: defaultdict[str, list[float]] = defaultdict(list)
        self.longest: defaultdict[str, list[float]] = defaultdict(list)
        """Of each kill."""
        self._not_before: dict[str, float] = dict.fromkeys(WAYS, 0.0)

    async def run(self, kills: int) -> Verdict:
        """So many kills of each way."""
        self._folder.mkdir(parents=True, exist_ok=True)
        try:
            async with Watch(self._settings) as watch:
                for way in WAYS:
                    await self._start(way)
                load = Load(self._settings, per_s=1.0, users=24, ask=question)
                async with load:
                    for _ in range(kills):
                        for way in WAYS:
                            await self._kill(way, watch)
                async with asyncio.timeout(4 * _LONGEST_S):
                    while load.asked - watch.ended:
                        await asyncio.sleep(0.1)
                await asyncio.sleep(2.0)  # the turn comes a moment behind the end
        finally:
            for worker in self._workers.values():
                worker.kill()
        return await judge(self._settings, paced=True)

    async def _start(self, way: str) -> None:
        own = self._settings.model_copy(update={"data_dir": self._folder / way, "watch": way})
        self._workers[way] = WorkerProcess(own, self._folder / f"{way}.log").start()
        await asyncio.to_thread(self._workers[way].wait_joined)

    async def _kill(self, way: str, watch: Watch) -> None:
        await asyncio.sleep(max(2 + 2 * self._chance.random(), self._not_before[way] - time.monotonic()))
        self._not_before[way] = time.monotonic() + _APART_S
        before = len(watch.silences)
        await asyncio.to_thread(self._workers[way].kill)
        await asyncio.sleep(_ON_ITS_WAY_S)
        watch.interrupted()
        async with asyncio.timeout(_LONGEST_S):
            while watch.silenced:
                await asyncio.sleep(0.02)
        pauses = watch.silences[before:]
        self.pauses[way] += pauses
        self.longest[way].append(max(pauses, default=0.0))
        print(f"{way}: {' '.join(f'{one:.2f}' for one in sorted(pauses))}", flush=True)
        await self._start(way)
