"""Hostile records of Kafka: what anybody may write who may write `requests`, `controls` or `tool-results`."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace

from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError

from app.settings import Settings
from app.wire.ids import partition_for
from tests.bad_records import BAD
from tests.hostile.raw_batches import RawProducer, batch, bomb, crowd, with_attributes, with_count

_CODECS = ("gzip", "snappy", "lz4", "zstd")
_MB = 1 << 20


@dataclass(frozen=True, slots=True)
class Sent:
    """A record that lies in a log, or the broker's refusal. `due`: it has an end event or a dead letter."""

    at: TopicPartition
    offset: int
    request_id: str | None = None
    due: bool = True
    refused: str = ""


@dataclass(slots=True)
class Sender:
    """Writes records of one hostile user."""

    settings: Settings
    producer: AIOKafkaProducer
    raw: RawProducer
    user: str
    id: str
    sent: list[Sent] = field(default_factory=list)

    def place(self, topic: str = "requests") -> TopicPartition:
        return TopicPartition(self.settings.topic(topic), partition_for(self.user, self.settings.partitions))

    def request(self, more: str = "", **fields: object) -> bytes:
        record = {"request_id": self.id, "user_id": self.user, "prompt": "hi", "max_tokens": 2, **fields}
        whole = json.dumps({name: value for name, value in record.items() if value is not ...})
        return (whole[:-1] + (f", {more}" if more else "") + "}").encode()

    async def record(
        self,
        value: bytes | None,
        topic: str = "requests",
        key: bytes | None = b"USER",
        headers: list[tuple[str, bytes | None]] | None = None,
        timestamp_ms: int | None = None,
    ) -> None:
        key = self.user.encode() if key == b"USER" else key
        value = value and value.replace(b"USER", self.user.encode())
        at, due = self.place(topic), topic == "requests"
        try:
            meta = await self.producer.send_and_wait(
                at.topic, value, key=key, headers=headers or [], partition=at.partition, timestamp_ms=timestamp_ms
            )
            self.sent.append(Sent(at, meta.offset, self.id if due else None, due))
        except (KafkaError, AssertionError) as error:
            self.sent.append(Sent(at, -1, due=False, refused=type(error).__name__))

    async def batch(self, raw: bytes, topic: str = "requests", *, due: bool = True, records: int = 1) -> None:
        """The outcome is expected at the last of its `records`."""
        at = self.place(topic)
        try:
            self.sent.append(Sent(at, await self.raw.send(at, raw) + records - 1, self.id, due))
        except KafkaError as error:
            self.sent.append(Sent(at, -1, due=False, refused=type(error).__name__))


@dataclass(frozen=True, slots=True)
class RecordKind:
    name: str
    send: Callable[[Sender], Awaitable[None]]


def _record(name: str, more: str = "", /, **fields: object) -> RecordKind:
    return RecordKind(name, lambda to: to.record(to.request(more, **fields)))


def _coded(codec: str) -> RecordKind:
    async def send(to: Sender) -> None:
        async with AIOKafkaProducer(**to.settings.cluster.options(), compression_type=codec) as producer:
            at = to.place()
            meta = await producer.send_and_wait(
                at.topic, to.request(metadata={"a": "x" * 2000}), key=to.user.encode(), partition=at.partition
            )
            to.sent.append(Sent(at, meta.offset, to.id))

    return RecordKind(f"a batch in {codec}", send)


def _garbage(topic: str, value: bytes | None, name: str) -> RecordKind:
    return RecordKind(name, lambda to: to.record(value, topic))


async def _aborted(to: Sender) -> None:
    """A transaction that is given up, with a hostile request and one that would be good."""
    async with AIOKafkaProducer(**to.settings.cluster.options(), transactional_id=f"t-{to.id}") as producer:
        await producer.begin_transaction()
        at = to.place()
        for value in (to.request('"n": 1e999'), to.request()):
            await producer.send(at.topic, value, key=to.user.encode(), partition=at.partition)
        await producer.flush()
        await producer.abort_transaction()
    await to.record(to.request())


async def _same_id(to: Sender) -> None:
    """One id for contradicting requests: the first one counts."""
    for number, fields in enumerate(
        ({"prompt": "a"}, {"prompt": 7}, {"prompt": "b", "max_tokens": -1}, {"prompt": "c"})
    ):
        await to.record(to.request(**fields))
        to.sent[-1] = replace(to.sent[-1], due=number == 0)


async def _cancels(to: Sender) -> None:
    """Cancelled before, with and after it comes, and erased."""
    cancel = json.dumps({"type": "cancel", "user_id": to.user, "request_id": to.id}).encode()
    for _ in range(3):
        await to.record(cancel, "controls")
    await to.record(to.request(max_tokens=500))
    for _ in range(3):
        await to.record(cancel, "controls")
    for kind in ({"type": "erase_conversation", "conversation_id": "default"}, {"type": "erase"}):
        await to.record(json.dumps({"user_id": to.user, **kind}).encode(), "controls")


ENVELOPES = (
    *map(_coded, _CODECS),
    RecordKind("a gzip bomb of 100 MiB", lambda to: to.batch(bomb(to.user.encode(), 100 * _MB))),
    RecordKind(
        "a gzip bomb on controls", lambda to: to.batch(bomb(to.user.encode(), 100 * _MB), "controls", due=False)
    ),
    RecordKind(
        "a gzip bomb on tool-results", lambda to: to.batch(bomb(to.user.encode(), 64 * _MB), "tool-results", due=False)
    ),
    RecordKind(
        "a header name that is no UTF-8", lambda to: to.batch(batch(to.user.encode(), to.request(), header=b"\xff\xfe"))
    ),
    RecordKind(
        "such a header on controls",
        lambda to: to.batch(batch(to.user.encode(), b"{}", header=b"\xff"), "controls", due=False),
    ),
    RecordKind(
        "such a header on tool-results",
        lambda to: to.batch(batch(to.user.encode(), b"{}", header=b"\xff"), "tool-results", due=False),
    ),
    RecordKind(
        "a time before the year 1", lambda to: to.batch(batch(to.user.encode(), to.request(), timestamp=-(10**15)))
    ),
    RecordKind(
        "a time after the year 9999", lambda to: to.batch(batch(to.user.encode(), to.request(), timestamp=10**15))
    ),
    RecordKind("a time of 0", lambda to: to.batch(batch(to.user.encode(), to.request(), timestamp=0))),
    RecordKind(
        "a batch of a codec that is none", lambda to: to.batch(with_attributes(batch(to.user.encode(), b"x"), 7))
    ),
    RecordKind(
        "a batch in a codec that it is not in", lambda to: to.batch(with_attributes(batch(to.user.encode(), b"x"), 3))
    ),
    RecordKind("a control batch", lambda to: to.batch(with_attributes(batch(b"\0\0\0\1", b"\0" * 6), 0x30))),
    RecordKind(
        "a batch that claims 1,000 records", lambda to: to.batch(with_count(batch(to.user.encode(), b"x"), 1000))
    ),
    RecordKind("a batch of 100,000 empty records", lambda to: to.batch(crowd(100_000), records=100_000)),
    RecordKind(
        "headers without values", lambda to: to.record(to.request(), headers=[("", None), ("content-type", None)])
    ),
    RecordKind("1,000 headers", lambda to: to.record(to.request(), headers=[("traceparent", b"\xff" * 200)] * 1000)),
    RecordKind(
        "Protobuf that is none",
        lambda to: to.record(b"\x0a\xff\xff\xff\xff\x0f" * 99, headers=[("content-type", b"application/x-protobuf")]),
    ),
    RecordKind("no key", lambda to: to.record(to.request(), key=None)),
    RecordKind("a key that is no UTF-8", lambda to: to.record(to.request(), key=b"\xff\xfe")),
    RecordKind("another key", lambda to: to.record(to.request(), key=b"somebody")),
    RecordKind("a tombstone", lambda to: to.record(None)),
    RecordKind("a transaction that is given up", _aborted),
)

CONTENTS = (
    _record("n of 1e999", '"n": 1e999'),
    _record("a list with 1e999", '"documents": [1e999]'),
    _record("deadline_ms of 18 digits", deadline_ms=10**18),
    _record("4,400 digits in an unknown field", f'"no_such_field": {"9" * 4400}'),
    _record("metadata 30,000 deep", '"metadata": ' + '{"a":' * 30_000),
    _record("a tenant that is none", tenant="\u0000/../" + "x" * 2000),
    _record("a prompt above every limit", prompt="x" * (_MB - 2000)),
    _record("recall of everything", recall=2**62),
    RecordKind("one id, four requests", _same_id),
    RecordKind("cancelled, asked, cancelled, erased", _cancels),
    *(
        RecordKind(
            f"bad: {bad.name}", lambda to, bad=bad: to.record(bad.of(to.user, to.id)[1], key=bad.of(to.user, to.id)[0])
        )  # type: ignore[misc]
        for bad in BAD[:10]
    ),
)

_AUDIT = b'{"type": "audit", "user_id": "USER", "action": "search", "outcome": "done", "at": %s}'

ELSEWHERE = (
    _garbage("controls", b"[" * 200_000, "a control 200,000 deep"),
    _garbage("controls", _AUDIT % (b"1" + b"0" * 21), "an audit of 22 digits"),
    _garbage("controls", _AUDIT % b"1e999", "an audit of 1e999"),
    _garbage("controls", b'{"type": "cancel", "user_id": "USER", "request_id": 1e999}', "a cancel of 1e999"),
    _garbage("controls", None, "a tombstone on controls"),
    _garbage("tool-results", b"[" * 200_000, "a result 200,000 deep"),
    _garbage("tool-results", b'{"request_id": "r", "user_id": "USER", "content": 1e999}', "a result of 1e999"),
    _garbage("turns", b'{"a": 1e999}', "a turn that is none"),
)

RECORD_KINDS = (*ENVELOPES, *CONTENTS, *ELSEWHERE)
