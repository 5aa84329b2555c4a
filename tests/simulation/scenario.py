"""One run of the simulation: a load, faults at chosen moments, peace, and the verdict."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path

import msgspec
from aiokafka import TopicPartition

from app.delivery.changelog import changelog_topic
from app.delivery.partition import Partition, State
from app.search.rows import rows_of
from app.settings import Settings
from app.wire import (
    Turn,
    WireError,
    cause_from,
    decode_request,
    decode_token_event,
    decode_turn,
    decode_usage,
    validate_request,
)
from app.wire.headers import FORWARDED
from app.wire.ids import partition_for
from app.wire.limits import MAX_RECORD_BYTES
from app.wire.validation import check_partition
from tables.records import Conversation, Erased, Table, decode, key_parts
from tables.usage import PROGRESS, Tally
from tests.faults.verdict import Key, Verdict, judge_records
from tests.simulation.broker import Broker, Entry
from tests.simulation.group import Group
from tests.simulation.memory_store import Disk
from tests.simulation.milvus import MilvusServer
from tests.simulation.process import Process
from tests.simulation.usage import wrong_usage
from tests.simulation.world import EPOCH, World

SESSION_S = 4.0
_PEACE_S = 400.0
_WAITED_MS = 600_000
_CLOCKS_MS = 2_000
_LATEST_S = 5.0  # after a request comes the last of what belongs to it


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
    pauses: float = 0.0
    """Share of requests before which the load pauses for longer than conversations live."""
    skewed: float = 0.0
    """Share of requests whose producer's clock is an hour off."""
    misplaced: float = 0.0
    """Share of requests that a wrong partitioner puts elsewhere."""
    huge: float = 0.0
    """Share of requests beside which a record comes that no dead letter can hold whole."""
    deadly: float = 0.0
    """Share of requests that end each process whose engine begins them."""


@dataclass(frozen=True, slots=True)
class Conditions:
    """What the world of a run is like."""

    ttl_s: float = 1800.0
    sweep_s: float = 3.0
    skew: bool = False
    """Processes' wall clocks are an hour off."""
    milvus: bool = False
    """Turns are indexed, in a Milvus whose calls may land late."""


# What ends a worker by delivery's own judgement; no other error proves that a promise was broken.
_OWN = ("FencedError", "LostRecordError")


@dataclass(slots=True)
class Outcome:
    verdict: Verdict
    steps: int
    wrong: list[str] = field(default_factory=list)
    crashes: list[str] = field(default_factory=list)
    """Errors that ended a process or a task: never right, and no proof that a promise was broken."""

    @property
    def clean(self) -> bool:
        return not (self.broken_promise or self.crashes)

    @property
    def broken_promise(self) -> bool:
        """Whether users can see that something is wrong: in the topics and tables, or by a worker that ends itself."""
        return not self.verdict.clean or bool(self.wrong) or any(name in line for name in _OWN for line in self.crashes)

    def line(self) -> str:
        return "; ".join([self.verdict.line(), *self.wrong, *self.crashes])


@lru_cache(maxsize=8)
def settings_for(name: str, partitions: int, max_in_flight: int, conditions: Conditions) -> Settings:
    return Settings(
        _env_file=None,
        data_dir=Path(name),
        partitions=partitions,
        engine="paced",
        embedder="same" if conditions.milvus else "none",
        paced_tokens_per_s=10.0,
        max_in_flight=max_in_flight,
        session_timeout_s=SESSION_S,
        finish_timeout_s=6.0,
        drain_s=1.0,
        sweep_interval_s=conditions.sweep_s,
        conversation_ttl_s=conditions.ttl_s,
        usage_window_s=2,
        usage_grace_s=2,
    )


PLAIN = Conditions()


class Simulation:
    def __init__(
        self,
        seed: int,
        *,
        workers: int = 1,
        partitions: int = 1,
        load: Load | None = None,
        conditions: Conditions = PLAIN,
    ) -> None:
        self.world = World(seed)
        self.random = self.world.random
        self.broker = Broker(self.world)
        self.group = Group(self.broker, partitions, SESSION_S)
        self.disk = Disk()
        self.processes: list[Process] = []
        self.endless: set[Key] = set()
        self.deadly: set[Key] = set()
        self.torn: set[Key] = set()
        """Requests whose events Kafka has lost."""
        self.milvus = MilvusServer(late=0.1) if conditions.milvus else None
        self._conditions = conditions
        self._sent_until = 0.0
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
        return settings_for(name, self._partitions, self._in_flight, self._conditions)

    def start(self, name: str) -> Process:
        skew = self.random.choice((-3600.0, 0.0, 3600.0)) if self._conditions.skew else 0.0
        process = Process(
            name,
            self.settings(name),
            self.broker,
            self.group,
            self.disk,
            milvus=self.milvus,
            skew=skew,
            on_death=self._supervise,
            is_deadly=lambda job: tuple(job.id.rsplit("/", 1)) in self.deadly,
        )
        self.processes.append(process)
        return process

    def _supervise(self, name: str) -> None:
        """What a supervisor does about a process that ended by itself."""

        def restart() -> None:
            if name not in {process.name for process in self.alive}:
                self.start(name)

        self.world.after(1.0, restart)

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
        self.world.run(EPOCH + max(16.0, self._sent_until))
        self._make_peace()
        settled, until = False, self.world.now
        while not settled and self.world.now < EPOCH + _PEACE_S:
            until += 1.0
            self.world.run(until)
            settled = self._settled()
        self.world.run(until + (90.0 if self.milvus is not None else 10.0))
        verdict = judge_records(
            self._read("requests"), self._read("tokens"), self._read("turns"), self.settings(), paced=True
        )
        erased = self._erased()
        # Whether a request beside an erasure saw the turns before hangs on which was met first. One that was sent
        # before the last erasure leaves an empty turn, whatever its readers were told.
        asked = self._asked_at()
        verdict.changed[:] = [key for key in verdict.changed if key[0] not in erased]
        verdict.turn_differs[:] = [key for key in verdict.turn_differs if key[0] not in erased or self._is_kept(key)]
        for name in ("lost", "gaps", "repeats", "second_ends", "turn_differs"):
            found = getattr(verdict, name)
            found[:] = [key for key in found if key not in self.torn]
        users = {user for user, _ in self.torn}  # an end that is lost makes the next answer look early
        verdict.out_of_order[:] = [key for key in verdict.out_of_order if key[0] not in users]
        wrong = [*self._wrong(verdict), *self._kept(erased, asked)]
        return Outcome(verdict, self.world.steps, wrong, self._crashes())

    def lost(self, entries: list[Entry]) -> None:
        """Kafka has lost these records of `tokens`: what becomes of their answers is not the workers' doing."""
        for entry in entries:
            if not entry.marker:
                event = decode_token_event(entry.value, entry.headers)
                self.torn.add((event.user_id or "", event.request_id or ""))

    def _is_kept(self, key: Key) -> bool:
        """Whether the turn has any text."""
        return any((turn.user_id, turn.request_id) == key and turn.answer for turn in self._turns())

    def _turns(self) -> list[Turn]:
        return [decode_turn(entry.value) for entry in self._read("turns")]

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
        topics = ("requests",) if self.milvus is None else ("requests", "turns", "controls")
        for at in (TopicPartition(topic, number) for topic in topics for number in range(self._partitions)):
            committed = self.broker.committed.get(at)
            entries = [entry for entry in self.broker.log(at).entries if entry.visible]
            if entries and (committed is None or committed.offset <= entries[-1].offset):
                return False
        return True

    def _wrong(self, verdict: Verdict) -> list[str]:
        wrong: list[str] = []
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
        wrong += self._wrong_times()
        wrong += self._wrong_letters()
        wrong += self._wrong_rows()
        ends = {key: reason for key, reason in self._reasons().items() if key in self.endless}
        wrong += [f"{key} was cancelled and ended as {reason}" for key, reason in ends.items() if reason != "cancelled"]
        errors = self._errors()
        wrong += [f"{key} ended as engine_error" for key in errors - self.deadly]
        return wrong

    def _crashes(self) -> list[str]:
        crashes = [f"{process.name} broken by {error!r}" for process in self.processes for error in process.broken]
        return crashes + [
            f"{process.name}: {context.get('message')} {context.get('exception')!r}"
            for process in self.processes
            for context in process.loop.errors
        ]

    def _errors(self) -> set[Key]:
        events = [decode_token_event(entry.value, entry.headers) for entry in self._read("tokens")]
        failed = [event for event in events if event.error is not None and event.error.code == "engine_error"]
        return {(event.user_id or "", event.request_id or "") for event in failed}

    def _wrong_times(self) -> list[str]:
        """Turns that ended later, or long before, the broker had them."""
        wrong = []
        for entry in self._read("turns"):
            turn = decode_turn(entry.value)
            if not -_WAITED_MS <= turn.created_at - entry.timestamp <= _CLOCKS_MS:
                wrong.append(f"{turn.request_id} ended {turn.created_at - entry.timestamp} ms after its record")
        return wrong

    def _wrong_letters(self) -> list[str]:
        """Records without the one dead letter that they had to have, and letters that nothing had led to."""
        sources = Counter()
        for letter in self._read("dead-letters"):
            cause = cause_from(letter.headers)
            assert cause is not None
            sources[cause.topic, cause.partition, cause.offset] += 1
        wanted = {
            (entry.topic, entry.partition, entry.offset) for entry in self._read("requests") if self._is_bad(entry)
        }
        wrong = [f"{place} has {count} dead letters" for place, count in sources.items() if count != 1]
        wrong += [f"{place} has no dead letter" for place in wanted - set(sources)]
        return wrong + [f"{place} has a dead letter" for place in set(sources) - wanted - self._deadly_places()]

    def _deadly_places(self) -> set[tuple[str, int, int]]:
        places = set()
        for entry in self._read("requests"):
            with suppress(ValueError):
                request = json.loads(entry.value or b"")
                if (request["user_id"], request["request_id"]) in self.deadly:
                    places.add((entry.topic, entry.partition, entry.offset))
        return places

    def _is_bad(self, entry: Entry) -> bool:
        try:
            request = decode_request(entry.value, entry.headers)
            validate_request(request, entry.key, max_prompt_bytes=self.settings().max_prompt_bytes)
            check_partition(request, entry.partition, self._partitions)
        except WireError as error:
            return error.dead_letter
        return False

    def _wrong_rows(self) -> list[str]:
        """Rows of the simulated Milvus that are no turn's, of erased turns, or missing."""
        if self.milvus is None:
            return []
        erased = self._erased()
        wanted = {
            row.turn_id: row.text
            for turn in self._turns()
            if turn.outlives(erased.get(turn.user_id, 0))
            for row in rows_of(turn)
        }
        there = {key: row["text"] for key, row in self.milvus.rows.items()}
        wrong = [f"row {key} should not be there" for key in there.keys() - wanted.keys()]
        wrong += [f"row {key} is missing" for key in wanted.keys() - there.keys()]
        return wrong + [f"row {key} differs" for key in wanted.keys() & there.keys() if wanted[key] != there[key]]

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
        own = [entry for entry in self._read("controls") if FORWARDED not in dict(entry.headers)]
        controls = [(json.loads(entry.value or b""), entry.timestamp) for entry in own]
        found: dict[str, int] = {}
        for control, at in controls:
            if control["type"] == "erase":
                found[control["user_id"]] = max(at, found.get(control["user_id"], 0))
        return found

    def _marked_at(self, erased: dict[str, int]) -> dict[str, int]:
        """When the mark of each user's last erasure was committed."""
        found: dict[str, int] = {}
        topic = changelog_topic(self.settings(), Table.ERASED)
        for entry in self._read(topic):
            (user,) = key_parts(entry.key or b"")
            number = partition_for(user, self._partitions)
            if entry.value and entry.partition == number and decode(entry.value, Erased).at >= erased[user]:
                found.setdefault(user, entry.timestamp)
        return found

    def _asked_at(self) -> dict[Key, int]:
        asked: dict[Key, int] = {}
        for entry in self._read("requests"):
            key = (entry.key or b"").decode(errors="replace")
            with suppress(ValueError, KeyError, TypeError):
                asked.setdefault((key, json.loads(entry.value or b"")["request_id"]), entry.timestamp)
        return asked

    def _kept(self, erased: dict[str, int], asked: dict[Key, int]) -> list[str]:
        """What is left of requests that were sent before their user's erasure, once its mark stands in the table."""
        marked = self._marked_at(erased)
        wrong = []
        for turn in self._turns():
            is_older = asked[turn.user_id, turn.request_id] <= erased.get(turn.user_id, -1)
            if is_older and turn.answer and turn.created_at > marked[turn.user_id]:
                wrong.append(f"{turn.user_id} is erased and the turn of {turn.request_id} has text")
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
        log = self.broker.log(at)
        return [entry for entry in (*log.expired, *log.entries) if entry.visible]

    def _load(self, load: Load) -> None:
        paused = 0.0
        for number in range(load.requests):
            user = f"user-{number % load.users}"
            request: dict[str, object] = {"request_id": f"r{number}", "user_id": user, "prompt": f"question {number}"}
            request["max_tokens"] = self.random.randint(1, 2 * load.tokens)
            if self.random.random() < load.pauses:
                paused += 2.5 * self._conditions.ttl_s
            at = paused + load.over_s * number / load.requests + self.random.random()
            self._sent_until = max(self._sent_until, at + _LATEST_S)
            skew = self.random.choice((-3600.0, 3600.0)) if self.random.random() < load.skewed else 0.0
            misplaced = self._partitions > 1 and self.random.random() < load.misplaced
            send = partial(self._send, "requests", user, skew=skew, misplaced=misplaced)
            if self.random.random() < load.deadly and not misplaced:
                self.deadly.add((user, f"r{number}"))
            if self.random.random() < load.huge:
                self.world.after(at, partial(self._append, "requests", user, b"x" * (MAX_RECORD_BYTES - 100)))
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

    def _send(
        self, topic: str, user: str, record: dict[str, object], *, skew: float = 0.0, misplaced: bool = False
    ) -> None:
        self._append(topic, user, json.dumps(record).encode(), skew=skew, misplaced=misplaced)

    def _append(self, topic: str, user: str, value: bytes, *, skew: float = 0.0, misplaced: bool = False) -> None:
        number = (partition_for(user, self._partitions) + misplaced) % self._partitions
        at = TopicPartition(topic, number)
        self.broker.append(at, user.encode(), value, timestamp=self.world.now + skew)
        if self.random.random() < 0.2:
            self.broker.append(at, None, None, marker=True)  # a hole, as transactional producers make them
