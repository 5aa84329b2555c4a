"""One run of the simulation: a load, faults at chosen moments, peace, and the verdict."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path

import msgspec
from aiokafka import TopicPartition

from app.delivery.changelog import changelog_topic
from app.delivery.partition import Partition, State
from app.settings import Settings
from app.wire import decode_usage
from app.wire.ids import partition_for
from tables.records import Conversation, Table, decode, key_parts
from tables.usage import PROGRESS, Tally
from tests.faults.verdict import Verdict, judge_records
from tests.simulation.broker import Broker, Entry
from tests.simulation.group import Group
from tests.simulation.memory_store import Disk
from tests.simulation.process import Process
from tests.simulation.usage import wrong_usage
from tests.simulation.world import EPOCH, World

SESSION_S = 4.0
_PEACE_S = 400.0


@dataclass(frozen=True, slots=True)
class Load:
    requests: int = 8
    users: int = 3
    tokens: int = 4
    over_s: float = 6.0
    cancels: float = 0.0
    """Share of requests that would speak for ever, and are cancelled."""
    repeats: float = 0.0
    """Share of requests that are sent again."""
    garbage: float = 0.0
    deadlines: float = 0.0
    erases: float = 0.0
    """Share of requests beside which their user is erased."""


@dataclass(slots=True)
class Outcome:
    verdict: Verdict
    steps: int
    wrong: list[str] = field(default_factory=list)

    @property
    def clean(self) -> bool:
        return self.verdict.clean and not self.wrong

    def line(self) -> str:
        return "; ".join([self.verdict.line(), *self.wrong])


@lru_cache(maxsize=8)
def settings_for(name: str, partitions: int, max_in_flight: int) -> Settings:
    return Settings(
        _env_file=None,
        data_dir=Path(name),
        partitions=partitions,
        engine="paced",
        embedder="none",
        paced_tokens_per_s=10.0,
        max_in_flight=max_in_flight,
        session_timeout_s=SESSION_S,
        finish_timeout_s=6.0,
        drain_s=1.0,
        sweep_interval_s=3.0,
        usage_window_s=2,
        usage_grace_s=2,
    )


class Simulation:
    def __init__(self, seed: int, *, workers: int = 1, partitions: int = 1, load: Load | None = None) -> None:
        self.world = World(seed)
        self.random = self.world.random
        self.broker = Broker(self.world)
        self.group = Group(self.broker, partitions, SESSION_S)
        self.disk = Disk()
        self.processes: list[Process] = []
        self.endless: set[tuple[str, str]] = set()
        self._partitions = partitions
        self._in_flight = self.random.choice((1, 2, 8))
        self._wanted = workers
        for number in range(workers):
            self.start(f"w{number}")
        self._load(load or Load())

    @property
    def alive(self) -> list[Process]:
        return [process for process in self.processes if not process.dead]

    def settings(self, name: str = "outside") -> Settings:
        return settings_for(name, self._partitions, self._in_flight)

    def start(self, name: str) -> Process:
        self.processes.append(Process(name, self.settings(name), self.broker, self.group, self.disk))
        return self.processes[-1]

    def at_step(self, step: int, happens: Callable[[], None]) -> None:
        self.world.at_step[step] = happens

    def run(self) -> Outcome:
        logging.disable(logging.CRITICAL)
        try:
            return self._run()
        finally:
            for process in list(self.processes):
                process.kill()
            logging.disable(logging.NOTSET)

    def _run(self) -> Outcome:
        self.world.run(EPOCH + 16.0)
        self._make_peace()
        settled, until = False, self.world.now
        while not settled and self.world.now < EPOCH + _PEACE_S:
            until += 1.0
            self.world.run(until)
            settled = self._settled()
        self.world.run(until + 10.0)
        verdict = judge_records(
            self._read("requests"), self._read("tokens"), self._read("turns"), self.settings(), paced=True
        )
        # What an erased user is told hangs on when the erasure is met; what is kept of it does not.
        erased = self._erased()
        for found in (verdict.changed, verdict.turn_differs):
            found[:] = [key for key in found if key[0] not in erased]
        return Outcome(verdict, self.world.steps, [*self._wrong(verdict), *self._kept(erased)])

    def _make_peace(self) -> None:
        self.world.at_step.clear()
        self.broker.up = True
        self.broker.trouble = 0.0
        for process in self.alive:
            process.link_up = True
            process.resume()
        if not [process for process in self.alive if not process.leaving]:
            self.start("last")

    def _settled(self) -> bool:
        for number in range(self._partitions):
            committed = self.broker.committed.get(TopicPartition("requests", number))
            entries = [entry for entry in self.broker.log(TopicPartition("requests", number)).entries if entry.visible]
            if entries and (committed is None or committed.offset <= entries[-1].offset):
                return False
        return True

    def _wrong(self, verdict: Verdict) -> list[str]:
        wrong = [f"{process.name} broken by {error!r}" for process in self.processes for error in process.broken]
        wrong += [
            f"{process.name}: {context.get('message')} {context.get('exception')!r}"
            for process in self.processes
            for context in process.loop.errors
        ]
        owners = [
            (process, partition)
            for process in self.alive
            for partition in process.worker.owner.partitions.values()
            if partition.state is State.OWNED and not process.broken
        ]
        if sorted(partition.number for _, partition in owners) != list(range(self._partitions)):
            wrong.append(f"owners at the end: {[(process.name, partition.number) for process, partition in owners]}")
        for process, partition in owners:
            for table in Table:
                at = TopicPartition(changelog_topic(self.settings(), table), partition.number)
                rows: dict[bytes | None, bytes | None] = {entry.key: entry.value for entry in self._visible(at)}
                kept = {key: value for key, value in rows.items() if value is not None}
                if dict(partition.own.store.scan(table)) != kept:
                    wrong.append(f"{process.name}: {table.value} of {partition.number} differs from its changelog")
        wrong += self._wrong_usage(owners)
        ends = {key: reason for key, reason in self._reasons().items() if key in self.endless}
        wrong += [f"{key} was cancelled and ended as {reason}" for key, reason in ends.items() if reason != "cancelled"]
        return wrong

    def _wrong_usage(self, owners: list[tuple[Process, Partition]]) -> list[str]:
        told = [decode_usage(entry.value) for entry in self._read("usage")]
        untold = [
            tally.requests
            for _, partition in owners
            for key, value in partition.own.store.scan(Table.USAGE)
            if key != PROGRESS and not (tally := msgspec.json.decode(value, type=Tally)).told
        ]
        return wrong_usage(told, self._read("turns"), sum(untold))

    def _erased(self) -> dict[str, int]:
        """The last erasure of each user that has one, Unix milliseconds."""
        controls = [(json.loads(entry.value or b""), entry.timestamp) for entry in self._read("controls")]
        return {control["user_id"]: at for control, at in controls if control["type"] == "erase"}

    def _kept(self, erased: dict[str, int]) -> list[str]:
        """Rows of conversations that hold a turn of a request that was erased, and marks that are not there."""
        asked: dict[tuple[str, str], int] = {}
        for entry in self._read("requests"):
            key = (entry.key or b"").decode()
            with suppress(ValueError):
                asked.setdefault((key, json.loads(entry.value or b"")["request_id"]), entry.timestamp)
        wrong = []
        for process in self.alive:
            owned = [one for one in process.worker.owner.partitions.values() if one.state is State.OWNED]
            for partition in owned:
                store = partition.own.store
                for key, value in store.scan(Table.CONVERSATIONS):
                    user, _ = key_parts(key)
                    turns = decode(value, Conversation).turns if user in erased else ()
                    wrong += [
                        f"{user} is erased and {turn.request_id} is remembered"
                        for turn in turns
                        if asked[user, turn.request_id] <= erased[user]
                    ]
        return wrong

    def _reasons(self) -> dict[tuple[str, str], str]:
        turns = [json.loads(entry.value or b"") for entry in self._read("turns")]
        return {(turn["user_id"], turn["request_id"]): turn["finish_reason"] for turn in turns}

    def _read(self, topic: str) -> list[Entry]:
        return [entry for number in range(self._partitions) for entry in self._visible(TopicPartition(topic, number))]

    def _visible(self, at: TopicPartition) -> list[Entry]:
        return [entry for entry in self.broker.log(at).entries if entry.visible]

    def _load(self, load: Load) -> None:
        for number in range(load.requests):
            user = f"user-{number % load.users}"
            request: dict[str, object] = {"request_id": f"r{number}", "user_id": user, "prompt": f"question {number}"}
            request["max_tokens"] = self.random.randint(1, 2 * load.tokens)
            at = load.over_s * number / load.requests + self.random.random()
            send = partial(self._send, "requests", user)
            if self.random.random() < load.cancels:
                request["max_tokens"] = 100_000
                self.endless.add((user, f"r{number}"))
                cancel = {"type": "cancel", "request_id": f"r{number}", "user_id": user}
                self.world.after(
                    at + self.random.choice((-0.5, 0.0, 0.3, 3.0)), partial(self._send, "controls", user, cancel)
                )
            elif self.random.random() < load.deadlines:
                request["deadline_ms"] = self.random.choice((0, 100, 1000, 5000))
            if load.erases and self.random.random() < load.erases:
                erase = partial(self._send, "controls", user, {"type": "erase", "user_id": user})
                self.world.after(at + self.random.choice((-0.5, 0.0, 0.3, 3.0)), erase)
            self.world.after(at, partial(send, request))
            if self.random.random() < load.repeats:
                self.world.after(at + self.random.choice((0.0, 0.3, 5.0)), partial(send, request))
            if self.random.random() < load.garbage:
                self.world.after(at, partial(self._append, "requests", user, b"{not json"))
                bad = {"request_id": f"bad{number}", "user_id": user, "prompt": "", "max_tokens": 3}
                good = {**bad, "prompt": "a good one of a known id"}
                for late, one in ((0.0, bad), (self.random.choice((0.0, 1.0)), {**bad, "prompt": 7}), (0.0, good)):
                    self.world.after(at + late, partial(self._send, "requests", user, one))

    def _send(self, topic: str, user: str, record: dict[str, object]) -> None:
        self._append(topic, user, json.dumps(record).encode())

    def _append(self, topic: str, user: str, value: bytes) -> None:
        at = TopicPartition(topic, partition_for(user, self._partitions))
        self.broker.append(at, user.encode(), value)
        if self.random.random() < 0.2:
            self.broker.append(at, None, None, marker=True)  # a hole, as transactional producers make them
