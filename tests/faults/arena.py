"""Where faults are inflicted: a cluster, workers that are started again when they end, a load, a watch."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

from app.local.kafka import KafkaCluster
from app.policy.tools import ApproveRules
from app.settings import Settings
from app.wire.error import ErrorCode
from tests.faults.load import Ask, Load, busy_question, paced_question, sleeping_question, tool_question
from tests.faults.order_verdict import wrong_words
from tests.faults.outcomes import Place, wrong_errors, wrong_letters
from tests.faults.records import Key, read_topic
from tests.faults.replay import Replay
from tests.faults.tool_programs import DeskPrograms, Programs, ToolPrograms
from tests.faults.verdict import Verdict, judge
from tests.faults.watch import Watch
from tests.faults.worker_process import WorkerProcess

SETTLE_S = 180.0

_PROGRAMS: Mapping[Ask, tuple[type[Programs], ...]] = {
    tool_question: (ToolPrograms,),
    busy_question: (ToolPrograms,),
    sleeping_question: (ToolPrograms, DeskPrograms),
}
"""Those that do what is asked for."""

Policies = Callable[[random.Random], str]
"""The text of the policy file of a worker that starts."""


class Arena:
    def __init__(
        self,
        cluster: KafkaCluster,
        settings: Settings,
        folder: Path,
        load: Load,
        watch: Watch,
        skew_s: float = 0.0,
        policies: Policies | None = None,
        always: str = "",
        approvals: ApproveRules | None = None,
    ) -> None:
        """`always` is a plug of every worker; `approvals` are those of the policies."""
        self.approvals = approvals
        self._always = always
        self._skew_s = skew_s
        self._policies = policies
        self.programs: list[Programs] = []
        self.cluster = cluster
        self.settings = settings
        self.folder = folder
        self.load = load
        self.watch = watch
        self.workers: dict[str, WorkerProcess] = {}
        self.random = random.Random(7)
        self.exits: Counter[str] = Counter()
        """How workers ended that were not asked to end."""
        self.expected: set[str] = set()
        """Workers that are going to end by themselves."""
        self.errors_due: Counter[str] = Counter()
        """Error events that the faults lead to, by their code."""
        self.letters_due: set[Place] = set()
        """Records that have to be dead letters."""
        self.misread: list[Key] = []
        """Answers that some reader has otherwise than the one that is always there."""
        self.wrong_rows: list[Key] = []

    def data_dir(self, name: str) -> Path:
        return self.folder / "data" / name

    def start(self, name: str, plug: tuple[str, int] | None = None) -> WorkerProcess:
        self.folder.mkdir(parents=True, exist_ok=True)
        settings = self.settings.model_copy(update={"data_dir": self.data_dir(name)})
        if self._policies is not None:
            policy = self.folder / f"{name}.toml"
            policy.write_text(self._policies(self.random))
            settings = settings.model_copy(update={"policy": policy})
        if self._always:
            name_of_plug, at = plug or ("", 0)
            plug = "+".join(filter(None, (self._always, name_of_plug))), at
        skew_s = self._skew_s * (-1 if sum(name.encode()) % 2 else 1)
        self.workers[name] = WorkerProcess(settings, self.folder / f"{name}.log", plug, skew_s=skew_s).start()
        return self.workers[name]

    def any(self) -> str:
        return self.random.choice(sorted(self.workers))

    async def speaking(self, timeout_s: float = 240.0) -> None:
        """Wait until token events arrive, also of all answers that a fault has silenced."""
        seen = self.watch.events
        async with asyncio.timeout(timeout_s):
            while self.watch.events < seen + 5 or self.watch.silenced:
                await asyncio.sleep(0.02)

    async def answered(self, timeout_s: float = 240.0) -> None:
        """Wait until all requests that were asked so far have ended.

        The attempts of a request that several crashes interrupt lie apart (quarantine.py), so that takes half a minute.
        """
        asked = set(self.load.asked)
        async with asyncio.timeout(timeout_s):
            while asked - self.watch.ended:
                await asyncio.sleep(0.1)

    async def ended(self, name: str, timeout_s: float = 180.0) -> int:
        worker = self.workers[name]
        async with asyncio.timeout(timeout_s):
            while worker.exit_code is None:
                await asyncio.sleep(0.02)
        assert worker.exit_code is not None
        return worker.exit_code

    async def failed(self, timeout_s: float = 180.0) -> None:
        """Until as many answers have ended in an error as were due to."""
        async with asyncio.timeout(timeout_s):
            while self.watch.errors.total() < self.errors_due.total():
                await asyncio.sleep(0.02)

    async def tend(self) -> None:
        """Start again what has ended, as a supervisor does."""
        while True:
            for name, worker in list(self.workers.items()):
                if worker.exit_code is not None:
                    if name in self.expected:
                        self.expected.discard(name)
                    else:
                        self.exits[f"exit {worker.exit_code}: {worker.last_words()}"] += 1
                    self.start(name)
            await asyncio.sleep(0.05)

    async def settle(self) -> None:
        """Until every request has its end, or none has ended for a long time."""
        ended, since = 0, time.monotonic()
        while self.load.asked - self.watch.ended and time.monotonic() - since < SETTLE_S:
            if len(self.watch.ended) > ended:
                ended, since = len(self.watch.ended), time.monotonic()
            await asyncio.sleep(0.1)
        await asyncio.sleep(2.0)

    async def verdict(self) -> Verdict:
        paced = self.settings.engine == "paced"
        replay = None if paced else Replay(self.settings)
        verdict = await judge(self.settings, paced=paced, replay=replay, approvals=self.approvals)
        verdict.changed += self.misread
        verdict.wrong_rows += self.wrong_rows
        by_request = {ErrorCode.CONVERSATION_BUSY: verdict.errors[ErrorCode.CONVERSATION_BUSY]}  # order_verdict.py
        verdict.wrong_errors = wrong_errors(self.errors_due + Counter(by_request), verdict.errors)
        verdict.wrong_order += await wrong_words(self.settings)
        optional = set().union(*(one.wrong for one in self.programs))
        letters = await read_topic(self.settings, "dead-letters")
        verdict.wrong_letters = wrong_letters(self.letters_due, letters, optional)
        return verdict


@asynccontextmanager
async def arena(
    cluster: KafkaCluster,
    settings: Settings,
    folder: Path,
    *,
    workers: int = 1,
    per_s: float = 5.0,
    users: int = 16,
    skew_s: float = 0.0,
    ask: Ask = paced_question,
    rows: Callable[[], Awaitable[list[Key]]] | None = None,
    policies: Policies | None = None,
    always: str = "",
    approvals: ApproveRules | None = None,
    load_of: type[Load] = Load,
) -> AsyncIterator[Arena]:
    """An arena in which answers are under way; at its end the load stops and every request gets its time to end.

    `rows` returns the wrong rows in Milvus, while workers run that can still correct them.
    """
    async with Watch(settings) as watch:
        load = load_of(settings, per_s=per_s, users=users, skew_s=skew_s, ask=ask)
        place = Arena(cluster, settings, folder, load, watch, skew_s, policies, always, approvals)
        for number in range(workers):
            place.start(f"w{number}")
        tending = asyncio.create_task(place.tend())
        try:
            async with AsyncExitStack() as stack:
                place.programs = [await stack.enter_async_context(one(settings)) for one in _PROGRAMS.get(ask, ())]
                async with load:
                    await place.speaking()
                    yield place
                await place.settle()
            place.wrong_rows = await rows() if rows is not None else []
        finally:
            tending.cancel()
            with suppress(asyncio.CancelledError):
                await tending
            for worker in place.workers.values():
                worker.kill()
