"""One request through the pipeline: an engine of words (word_engine.py), a store in memory, a log in a list. No server.

`answered` runs a request to its commit. `same_at_every_cut` runs it again for each event of that run, as the next owner
of the partition would that has only the events before it.
"""

from __future__ import annotations

import asyncio
import dataclasses
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, cast

import msgspec

from app.answering.batches import Batches
from app.answering.containment import Containment
from app.answering.pipeline import Pipeline, Retry
from app.answering.stage import Feature, Switch
from app.delivery.accepted import Accepted, Former
from app.delivery.commits.commit import Commit
from app.delivery.inflight import InFlight, Outcome
from app.delivery.observer import Observer
from app.delivery.partition import Partition, State
from app.delivery.record import REQUESTS, Outgoing, Record
from app.delivery.resume.quarantine import AttemptCount, lost_attempts
from app.delivery.resume.recovery import with_notice
from app.delivery.resume.tokens import TokenLog
from app.delivery.sleepers import Sleepers
from app.features.host import WorkerParts
from app.features.order import features_of
from app.features.quota.stage import Quota
from app.policy.file import Policy
from app.prices import PriceList
from app.reader.rule import Answer
from app.settings import Settings
from app.wire.codec import decode, encode
from app.wire.dead_letters import ERROR_CODE
from app.wire.event import PLAN, Notice, Plan, TokenEvent
from app.wire.request import Request
from app.wire.turn import Turn
from app.wire.validation import with_tenant
from models.interface.generation import (
    FinishReason,
    Job,
    StreamEvent,
)
from models.served.registry import ModelRegistry, ServedModel
from tables import records
from tables.conversations import MemoryRules
from tables.erasures import PartitionMarks
from tables.records import Conversation, Erased, RowChange, Table
from tests.simulation.memory_store import Disk, MemoryStore
from tests.unit.answering.word_engine import Before, model

ASKED_AT = 1_700_000_000_000
NOW = ASKED_AT + 1000
SETTINGS = Settings(_env_file=None, max_tokens=6)
WEATHER = {"type": "function", "function": {"name": "look_up", "parameters": {"type": "object"}}}
_EPOCH = 5
_DEADLINE_S = 60

Prepare = Callable[[InFlight], None]


class Log:
    """`tokens` of one partition: events with the time of the broker, and the rows that were committed before each."""

    def __init__(self, store: MemoryStore) -> None:
        self.events: list[TokenEvent] = []
        self.rows: list[list[RowChange]] = []
        self.beside: list[Outgoing] = []
        self.pauses = 0
        self._store = store

    delivered = staticmethod(TokenLog.delivered)
    epoch = _EPOCH

    def now(self) -> int:
        return NOW

    async def pause(self, _delivery: asyncio.Future[Any], _stream: object) -> None:
        self.pauses += 1
        await asyncio.sleep(0)

    async def send(self, event: TokenEvent, _key: bytes | None, _headers: object = ()) -> asyncio.Future[Any]:
        self.rows.append([RowChange(table, key, value) for table in Table for key, value in self._store.scan(table)])
        self.events.append(msgspec.structs.replace(event, timestamp=NOW, epoch=_EPOCH))
        delivered = asyncio.get_running_loop().create_future()
        delivered.set_result(None)
        return delivered

    async def send_beside(self, records_of: Callable[[int], Sequence[Outgoing]], _key: object) -> list[Any]:
        self.beside += records_of(_EPOCH)
        return []


class Clock:
    def now(self) -> int:
        return NOW

    def time_of(self, timestamp: int) -> int:
        return min(timestamp, NOW)


class Own:
    def __init__(self) -> None:
        self.clock = Clock()
        self.store = MemoryStore.open_on(Disk(), Path("p"), owner="test")
        self.token_log = Log(self.store)
        self.marks = PartitionMarks(self.store)
        self.sleepers = Sleepers(self.store)


class FreeLanes:
    def has_queue(self, _lane: object) -> bool:
        return False

    def items(self, _lane: object) -> list[InFlight]:
        return []

    @asynccontextmanager
    async def without_slot(self) -> AsyncIterator[None]:
        yield


@dataclass
class Lent:
    waiting: int = 0

    def lent_by(self, _user: bytes | None) -> int:
        return self.waiting


@dataclass
class Context:
    too_large: set[tuple[str, str]] = field(default_factory=set)
    settings: Settings = SETTINGS


class BenchPartition:
    """`on_commit` is called with each commit, after it is in the store."""

    number = 3
    state = State.OWNED

    def __init__(self, rows: Iterable[RowChange] = ()) -> None:
        self.ownership, self.lanes, self.records, self.context = Own(), FreeLanes(), Lent(), Context()
        self.begun: dict[tuple[str, str], int] = {}
        self.commits: list[Commit] = []
        self.on_commit: Callable[[Commit], None] = lambda _commit: None
        self.lent = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self.apply(*rows)

    def apply(self, *rows: RowChange) -> None:
        self.ownership.store.apply(rows, {}, now_ms=0)

    def put(self, table: Table, row: object, *key: str) -> None:
        self.apply(RowChange(table, records.key(*key), records.encode(row)))

    async def commit(self, commit: Commit, *, urgent: bool = False) -> None:
        del urgent
        await asyncio.sleep(0)
        self.commits.append(commit)
        self.apply(*commit.changes)
        self.on_commit(commit)

    def release(self, inflight: InFlight) -> None:
        inflight.abandon()

    @asynccontextmanager
    async def without_slot(self, _inflight: InFlight) -> AsyncIterator[None]:
        self.lent += 1
        yield
        self.lent -= 1

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def rest(self) -> None:
        """Until nothing is left to be done."""
        while self._tasks:
            await asyncio.gather(*self._tasks)


@dataclass(frozen=True)
class Told:
    """What readers, the store and the observers have of one request. `before`: events of its former owner."""

    partition: BenchPartition
    before: tuple[TokenEvent, ...]
    outcomes: tuple[Outcome, ...]
    user_id: str
    conversation_id: str

    @property
    def events(self) -> list[TokenEvent]:
        """Those of this owner."""
        return self.partition.ownership.token_log.events

    @property
    def read(self) -> Answer:
        """By the reader rule; raises if the events leave a gap, go back, or go on behind the end."""
        answer = Answer(self.user_id, "r1", self.conversation_id)
        for event in (*self.before, *self.events):
            if event.notice is None:
                assert answer.end is None
                assert event.index == answer.position
                answer.append(event)
        assert answer.end is not None
        return answer

    @property
    def text(self) -> str:
        return self.read.text

    @property
    def end(self) -> TokenEvent:
        end = self.read.end
        assert end is not None
        return end

    @property
    def code(self) -> str | None:
        """Of the error in which it ends."""
        return None if self.end.error is None else self.end.error.code

    @property
    def notices(self) -> list[str]:
        return [event.notice.code for event in self.events if event.notice is not None]

    @property
    def plans(self) -> list[Plan]:
        return [msgspec.convert(one.details, Plan) for one in self._notices if one.code == PLAN]

    @property
    def plan(self) -> Plan:
        """That in force at the end."""
        notices = [event.notice for event in (*self.before, *self.events) if event.notice is not None]
        plans = [msgspec.convert(one.details, Plan) for one in notices if one.code == PLAN]
        return plans[-1] if plans else Plan()

    @property
    def _notices(self) -> list[Notice]:
        return [event.notice for event in self.events if event.notice is not None]

    @property
    def commit(self) -> Commit:
        (commit,) = (one for one in self.partition.commits if one.record is not None)
        return commit

    def outputs(self, topic: str) -> list[Outgoing]:
        return [one for commit in self.partition.commits for one in commit.outputs if one.topic == topic]

    @property
    def turn(self) -> Turn | None:
        outputs = self.outputs("turns")
        return decode(Turn, outputs[0].value, outputs[0].headers) if outputs else None

    @property
    def row(self) -> records.KeptTurn | None:
        """Its turn in the conversation."""
        raw = self.partition.ownership.store.get(Table.CONVERSATIONS, records.key(self.user_id, self.conversation_id))
        turns = () if raw is None else records.decode_row(raw, Conversation).turns
        return next((turn for turn in turns if turn.request_id == "r1"), None)

    @property
    def letters(self) -> list[str]:
        """The codes of its dead letters."""
        letters = self.outputs("dead-letters")
        return [(value or b"").decode() for one in letters for name, value in one.headers if name == ERROR_CODE]

    @property
    def open_calls(self) -> bool:
        return self.partition.ownership.store.get(Table.CALLS, records.key(self.user_id, "r1")) is not None

    @property
    def outcome(self) -> Outcome:
        (outcome,) = self.outcomes
        return outcome

    @property
    def facts(self) -> dict[str, Any]:
        """What has to be the same when another owner goes on in the middle."""
        turn = None if self.turn is None else msgspec.structs.replace(self.turn, timing=None)
        return {
            "text": self.text,
            "end": msgspec.structs.replace(self.end, timestamp=None, prompt_digest=None),
            "turn": turn,
            "row": self.row,
            "letters": self.letters,
            "open calls": self.open_calls,
        }


class _Reported(Observer):
    def __init__(self) -> None:
        self.outcomes: list[Outcome] = []

    def answered(self, partition: int, outcome: Outcome) -> None:
        assert partition == BenchPartition.number
        self.outcomes.append(outcome)


def former_of(events: Sequence[TokenEvent], user_id: str = "ann", conversation_id: str = "default") -> Former:
    """What the next owner reads from the log in which these events are."""
    former = Former(is_replayed=True)
    answer = Answer(user_id, "r1", conversation_id)
    for event in events:
        if event.notice is not None:
            former = with_notice(former, event.notice, event.index or 0, event.timestamp or 0)
        else:
            answer.append(event)
    has_answer = bool(answer.segments or answer.end)
    return dataclasses.replace(former, answer=answer if has_answer else None)


def inflight_of(request: Request, former: Former) -> InFlight:
    value, headers = encode(request)
    record = Record(REQUESTS, 3, 42, ASKED_AT, request.user_id.encode(), value, tuple(headers))
    accepted = Accepted(record, request, ASKED_AT if former.plan.at is None else former.plan.at, former)
    last, position = former.attempt, former.position
    attempts = AttemptCount(lost_attempts(last, position), position, 0 if last is None else last.at)
    return InFlight(accepted, attempts=attempts)


async def answered(
    *features: Feature,
    models: Sequence[ServedModel] = (),
    former: Former | None = None,
    before: Sequence[TokenEvent] = (),
    partition: BenchPartition | None = None,
    settings: Settings = SETTINGS,
    prepare: Prepare = lambda _inflight: None,
    **fields: Any,
) -> Told:
    """Run one request to its commit. `before` are the events of a former owner; `prepare` gets the request first."""
    partition, models = partition or BenchPartition(), models or (model(),)
    request = with_tenant(msgspec.convert({"request_id": "r1", "user_id": "ann", "prompt": "why?", **fields}, Request))
    if former is None:
        former = former_of(before, request.user_id, request.conversation_id) if before else Former()
    inflight = inflight_of(request, former)
    prepare(inflight)
    registry, observer = ModelRegistry(*models), _Reported()
    order = _order()
    retry = Retry(registry, next((one.may_name for one in features if isinstance(one, Quota)), lambda *_: True))
    own = (retry, *features)
    chosen = sorted(own, key=lambda one: order.index(type(one)) if type(one) in order else 99)
    pipeline = Pipeline(
        SETTINGS if settings is None else settings, registry, MemoryRules(10, 10**15), batches(), Switch(chosen)
    )
    async with asyncio.timeout(_DEADLINE_S):
        await Containment(pipeline, observer).answer(cast(Partition, partition), inflight)
        for one in models:  # before anything is left to the garbage collector
            assert not getattr(one.engine, "open", ()), "a job of the engine is open"
        assert not inflight.attempts.is_beginning
        await partition.rest()
    return Told(partition, tuple(before), tuple(observer.outcomes), request.user_id, request.conversation_id)


@cache
def _order() -> tuple[type[Feature], ...]:
    """That of a worker."""
    policy, models = Policy(), ModelRegistry(model())
    prices = PriceList(SETTINGS.prices, policy)
    host = WorkerParts(SETTINGS, policy, models, prices, None, cast(Any, None), lambda: 0.0, lambda: NOW, tuple)
    return tuple(type(one) for one in features_of(host).all)


def batches() -> Batches:
    return Batches(max_size=8, budget_s=0.001)


Rerun = Callable[[BenchPartition, Sequence[TokenEvent]], Awaitable[Told]]


async def same_at_every_cut(run: Rerun, facts: Callable[[Told], object] = lambda told: told.facts) -> Told:
    """Let the next owner go on behind each event of an answer: what readers, `turns` and the table get is the same.
    Returns the answer without a cut.
    """
    whole = await run(BenchPartition(), ())
    log = whole.partition.ownership.token_log
    for cut in range(1, len(log.events) + 1):
        events = log.events[:cut]
        last = len(log.events) - 1  # what is committed behind the end is the request itself
        for committed in (log.rows[cut - 1], log.rows[min(cut, last)]):
            resumed = await run(BenchPartition(committed), events)
            assert facts(resumed) == facts(whole), f"behind event {cut}: {events[-1]}"
            assert resumed.plan == whole.plan, f"behind event {cut}: {events[-1]}"
    return whole


def partition_with_erasure(at: int = ASKED_AT) -> BenchPartition:
    """One in which the user's erasure of that time is applied, and not done."""
    partition = BenchPartition()
    partition.put(Table.ERASED, Erased(at, applied=NOW), "ann")
    return partition


def stop_at(index: int, reason: FinishReason = FinishReason.CANCELLED) -> tuple[Before, Prepare]:
    """Stop the request before the engine writes the token `index`."""
    inflights: list[InFlight] = []

    def before(_job: Job, at: int) -> StreamEvent | None:
        if at == index:
            inflights[-1].stop.now(reason)
        return None

    return before, inflights.append


def stopped(reason: FinishReason = FinishReason.CANCELLED) -> Prepare:
    """Stop the request before its turn comes."""
    return lambda inflight: inflight.stop.now(reason)


def placeholders_in(text: str) -> list[str]:
    return re.findall(r"<[A-Z_]+_[0-9A-Z]{8}>", text)
