"""One run: hostile kinds one after another, good requests beside and behind them, and what became of all."""

from __future__ import annotations

import asyncio
import itertools
import json
import time
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from app.kafka.topics import create_topics
from app.local.kafka import KafkaCluster
from app.settings import Settings
from app.wire.codec import decode
from app.wire.dead_letters import cause_from
from app.wire.event import EventType, TokenEvent
from app.wire.ids import partition_for
from tests.faults.worker_process import WorkerProcess
from tests.hostile.http_kinds import HttpKind
from tests.hostile.raw_batches import RawProducer
from tests.hostile.record_kinds import RecordKind, Sender, Sent
from tests.integration.gateway.gateway_process import NO_LIMIT_OF_ERASURES, GatewayProcess

Kind = HttpKind | RecordKind
Show = Callable[["Result"], None]

MOST_FENCES = 2
GOOD_WAITS_S = 5.0
_PARTITIONS = 2
_PATIENCE_S = 60.0
_MOST_STALLS = 3
"""After so many kinds in a row with good requests that wait for too long, the run ends: the service is down."""
_READ_S = 1.0
"""A record that is due no outcome is read within this time, if any record is."""
POLICY = """
[guard]
pii = "mask"
prompt = { profanity = "flag", injection = "flag" }
answer = { profanity = "block" }
[cache]
ttl_s = 60
"""


@dataclass(slots=True)
class Result:
    """Of one kind: what its sender or the topics got, after how long, and the longest wait of a good request."""

    name: str
    outcome: str = ""
    seconds: float = 0.0
    good_s: float = 0.0
    faults: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Report:
    results: list[Result] = field(default_factory=list)
    fences: Counter[int] = field(default_factory=Counter)
    ended: int = 0
    """Workers that ended."""
    waits: list[float] = field(default_factory=list)
    """Of all good requests, to the end."""
    faults: list[str] = field(default_factory=list)

    @property
    def clean(self) -> bool:
        return not self.faults and not any(result.faults for result in self.results)


def settings_for(cluster: KafkaCluster, folder: Path, *, guard: bool, **values: Any) -> Settings:
    policy = folder / "policy.toml"
    policy.write_text(POLICY)
    defaults: dict[str, Any] = {
        "broker": cluster.broker_setting,
        "topic_prefix": f"hostile{uuid.uuid4().hex[:8]}-",
        "data_dir": folder / "data",
        "partitions": _PARTITIONS,
        "engine": "torch",
        "embedder": "none",
        "gateway_requests_per_min": 0,
        "gateway_tokens_per_min": 0,
        "gateway_user_header": "X-User",
        "policy": policy if guard else None,
    }
    settings = Settings(_env_file=None, **{**defaults, **values})
    asyncio.run(create_topics(settings))
    return settings


class Watch:
    """Reads `tokens` and `dead-letters` as anybody can."""

    def __init__(self, settings: Settings) -> None:
        self.ends: defaultdict[str, list[str]] = defaultdict(list)
        self.letters: Counter[tuple[str, int, int]] = Counter()
        self.fences: Counter[int] = Counter()
        self.faults: list[str] = []
        self._settings = settings
        self._changed = asyncio.Event()

    async def run(self) -> None:
        options: dict[str, Any] = self._settings.cluster.options()
        async with AIOKafkaConsumer(**options, isolation_level="read_committed", fetch_max_wait_ms=50) as consumer:
            names = [self._settings.topic(topic) for topic in ("tokens", "dead-letters")]
            places = [TopicPartition(name, number) for name in names for number in range(self._settings.partitions)]
            consumer.assign(places)
            await consumer.seek_to_beginning(*places)
            while True:
                for at, records in (await consumer.getmany(timeout_ms=100)).items():
                    for record in records:
                        self._note(at, record)
                self._changed.set()
                self._changed = asyncio.Event()

    def _note(self, at: TopicPartition, record: Any) -> None:
        if at.topic != self._settings.topic("tokens"):
            cause = cause_from(record.headers)
            if cause is None:
                self.faults.append(f"a dead letter without its cause: {record.headers}")
            else:
                self.letters[cause.topic, cause.partition, cause.offset] += 1
            return
        try:
            event = decode(TokenEvent, record.value, record.headers)
        except Exception as error:  # noqa: BLE001 - of any type: it is what readers get
            self.faults.append(f"nobody can read tokens {at.partition}@{record.offset}: {error!r}")
            return
        if event.type is EventType.FENCE:
            self.fences[at.partition] += 1
        elif event.is_end:
            self.ends[event.request_id or ""].append(event.error.code if event.error else str(event.finish_reason))

    async def outcome(self, sent: Sent, patience_s: float) -> str:
        """The end or the dead letter of a record, "" if it has none within that time."""
        until = time.monotonic() + patience_s
        place = (sent.at.topic, sent.at.partition, sent.offset)
        while time.monotonic() < until:
            ends, letter = self.ends.get(sent.request_id or "", []), self.letters[place]
            if ends or letter:
                return "/".join([*dict.fromkeys(ends), *(["dead letter"] if letter else [])])
            changed = self._changed
            try:
                await asyncio.wait_for(changed.wait(), 0.5)
            except TimeoutError:
                continue
        return ""


class Run:
    def __init__(self, worker: WorkerProcess, gateway: GatewayProcess) -> None:
        self.report = Report()
        self._settings = worker.settings
        self._worker = worker
        self._gateway = gateway
        self._watch = Watch(worker.settings)
        self._good: list[tuple[float, float]] = []
        """When each good request was sent, and when it ended."""
        self._numbers = itertools.count()

    async def all(self, kinds: Sequence[Kind], show: Show) -> Report:
        options: dict[str, Any] = self._settings.cluster.options()
        async with (
            AIOKafkaProducer(**options, max_request_size=4 << 20) as self._producer,
            RawProducer(self._settings.cluster) as self._raw,
            httpx.AsyncClient(base_url=self._gateway.url, timeout=_PATIENCE_S) as self._http,
        ):
            beside = [asyncio.create_task(self._keep_asking(number)) for number in range(_PARTITIONS)]
            helpers = [asyncio.create_task(self._watch.run()), asyncio.create_task(self._supervise()), *beside]
            try:
                for number in range(_PARTITIONS):  # what is slow about a first request is no kind's fault
                    await self._ask_good(self._user("first", number))
                self._good.clear()
                await self._inflict_all(kinds, show)
            finally:
                for task in helpers:
                    task.cancel()
                for error in await asyncio.gather(*helpers, return_exceptions=True):
                    if isinstance(error, Exception):
                        self.report.faults.append(f"the run itself failed: {error!r}")
        self._conclude()
        return self.report

    async def _inflict_all(self, kinds: Sequence[Kind], show: Show) -> None:
        stalls = 0
        for kind in kinds:
            result = await self._inflict(kind)
            self.report.results.append(result)
            show(result)
            stalls = stalls + 1 if result.good_s > GOOD_WAITS_S else 0
            if stalls == _MOST_STALLS:
                self.report.faults.append(f"after {kind.name!r} the service is down; what follows was not tried")
                return

    async def _inflict(self, kind: Kind) -> Result:
        result, began, number = Result(kind.name), time.monotonic(), next(self._numbers)
        partition = number % _PARTITIONS
        work = self._request(kind, number) if isinstance(kind, HttpKind) else self._record(kind, number)
        task = asyncio.create_task(work)
        await asyncio.sleep(0.05)
        behind = asyncio.create_task(self._ask_good(self._user(f"behind-{number}", partition)))
        result.outcome, faults = await task
        result.seconds = time.monotonic() - began
        faults += await behind
        result.good_s = self._longest_since(began)
        if result.good_s > GOOD_WAITS_S:
            faults.append(f"a good request waited {result.good_s:.1f} s")
        result.faults = faults
        return result

    async def _request(self, kind: HttpKind, number: int) -> tuple[str, list[str]]:
        headers = {**kind.headers, "X-User": self._user(f"mallory-{number}", number % _PARTITIONS)}
        try:
            reply = await self._http.post(kind.path, content=kind.body, headers=headers)
        except httpx.HTTPError as error:
            return "no reply", [f"no reply: {type(error).__name__}"]
        faults = [] if reply.status_code < 500 else [f"{reply.status_code}: {reply.text[:200]}"]
        return str(reply.status_code), faults

    async def _record(self, kind: RecordKind, number: int) -> tuple[str, list[str]]:
        user = self._user(f"mallory-{number}", number % _PARTITIONS)
        sender = Sender(self._settings, self._producer, self._raw, user, f"bad-{number}")
        await kind.send(sender)
        outcomes, faults = [], []
        for sent in sender.sent:
            found = sent.refused and f"refused by Kafka ({sent.refused})"
            found = found or await self._watch.outcome(sent, _PATIENCE_S if sent.due else _READ_S)
            outcomes.append(found or "nothing")
            if sent.due and not found:
                faults.append(f"{sent.at.topic}[{sent.at.partition}]@{sent.offset} has no outcome")
            place = (sent.at.topic, sent.at.partition, sent.offset)
            if self._watch.letters[place] > 1:
                faults.append(f"{place} has {self._watch.letters[place]} dead letters")
        ends = self._watch.ends.get(sender.id, [])
        if len(ends) > 1:
            faults.append(f"{sender.id} has {len(ends)} ends: {ends}")
        return ", ".join(dict.fromkeys(outcomes)), faults

    async def _keep_asking(self, partition: int) -> None:
        for number in itertools.count():
            self.report.faults += await self._ask_good(self._user(f"good-{number % 3}", partition))
            await asyncio.sleep(0.1)

    async def _ask_good(self, user: str) -> list[str]:
        """A good request; what is wrong with its answer."""
        body = {"messages": [{"role": "user", "content": f"Hi, {user}"}], "max_tokens": 3}
        began = time.monotonic()
        self._good.append((began, 0.0))
        place = len(self._good) - 1
        try:
            reply = await self._http.post("/v1/chat/completions", json=body, headers={"X-User": user})
        except httpx.HTTPError as error:
            return [f"the good request of {user} was not answered: {type(error).__name__}"]
        finally:
            if place < len(self._good):
                self._good[place] = (began, time.monotonic())
        self.report.waits.append(time.monotonic() - began)
        text = reply.json()["choices"][0]["finish_reason"] if reply.status_code == 200 else reply.text[:200]
        return [] if text in {"length", "stop"} else [f"the good request of {user} got {reply.status_code} {text}"]

    def _longest_since(self, began: float) -> float:
        now = time.monotonic()
        overlapping = [(sent, end or now) for sent, end in self._good if not end or end > began]
        return max((end - sent for sent, end in overlapping), default=0.0)

    def _user(self, name: str, partition: int) -> str:
        """A user of that name in the partition."""
        candidates = (f"{name}.{number}" for number in itertools.count())
        return next(user for user in candidates if partition_for(user, _PARTITIONS) == partition)

    async def _supervise(self) -> None:
        while True:
            await asyncio.sleep(0.2)
            if self._worker.exit_code is not None:
                self.report.ended += 1
                self.report.faults.append(f"a worker ended: {self._worker.last_words()}")
                self._worker.start()

    def _conclude(self) -> None:
        self.report.fences = self._watch.fences
        self.report.faults += self._watch.faults
        for partition, count in self._watch.fences.items():
            if count > MOST_FENCES:
                self.report.faults.append(f"partition {partition} has {count} fences")
        for log in (self._worker.log, self._gateway.log):
            text = log.read_text(errors="replace")
            if (count := text.count("Traceback")) > 0:
                at = text.index("Traceback")
                self.report.faults.append(
                    f"{log.name} has {count} tracebacks, the first: {json.dumps(text[at:][:1500])}"
                )


def hostile_run(
    cluster: KafkaCluster, folder: Path, kinds: Sequence[Kind], show: Show, *, guard: bool, **values: Any
) -> Report:
    settings = settings_for(cluster, folder, guard=guard, **values)
    with (
        WorkerProcess(settings, folder / "worker.log") as worker,
        GatewayProcess(settings, folder / "gateway.log", constants=NO_LIMIT_OF_ERASURES) as gateway,
    ):
        worker.wait_owning(settings.partitions)
        return asyncio.run(Run(worker, gateway).all(kinds, show))
