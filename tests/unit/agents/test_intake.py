from __future__ import annotations

import asyncio
import dataclasses
import json
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
from aiokafka import ConsumerRecord, TopicPartition

from agents.intake import reader_of
from app.delivery.commits.commit import Commit, RecordRefusedError
from app.delivery.commits.handover import Handover
from app.delivery.record import Outgoing, Record
from app.features.foreign import intake as maker
from app.features.foreign import taking as taking_module
from app.features.foreign.intake import IntakeRecords
from app.features.foreign.taking import Taking, _chunks
from app.features.foreign.written_ahead import WrittenAhead
from app.foreign.formats import IntakeTopic, decode_json, foreign_topics
from app.foreign.framing import Decoded
from app.foreign.passed import INTAKE_SOURCE, values_at
from app.policy.file import Policy
from app.policy.foreign import EgressRules, IntakeRules
from app.settings import Settings
from app.wire.json_codec import MalformedError
from tables.records import Table, Taken, decode_row, encode
from tests.unit.delivery.fake_partition import NOW, Clock

AT = TopicPartition("asks", 1)
SETTINGS = Settings(_env_file=None, partitions=4, requests_retention_s=2000, tokens_retention_s=4000)
RULES = IntakeRules(topic="asks", fields={"user_id": "who", "prompt": "text"})

TOPIC = IntakeTopic(RULES, (), (), decode_json)


class Queue:
    """Refuses each commit with an output that has this text."""

    def __init__(self, refuses: bytes = b"") -> None:
        self.commits: list[Commit] = []
        self._refuses = refuses

    def put(self, commit: Commit) -> asyncio.Future[None]:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._refuses and any(self._refuses in (output.value or b"") for output in commit.outputs):
            done.set_exception(RecordRefusedError("too large"))
        else:
            self.commits.append(commit)
            done.set_result(None)
        return done

    @property
    def outputs(self) -> list[Outgoing]:
        return [output for commit in self.commits for output in commit.outputs]


def taking(queue: Queue, topic: IntakeTopic = TOPIC) -> Taking:
    partition = SimpleNamespace(context=SimpleNamespace(queue=queue), ownership=SimpleNamespace(clock=Clock()))
    return Taking(SETTINGS, cast(Any, partition), AT, topic, asyncio.Event(), WrittenAhead(8, cast(Any, None)))


def record(offset: int, text: str = "Hi", at: int = NOW) -> Record:
    return Record("asks", 1, offset, at, None, b'{"who": "u", "text": "%s"}' % text.encode(), is_foreign=True)


async def test_what_is_taken_and_the_offset_behind_it_are_one_commit() -> None:
    queue = Queue()
    await taking(queue)._take([record(5), record(6)], 9)
    (commit,) = queue.commits
    (change,) = commit.changes
    assert (change.table, change.key) == (Table.INTAKE, b'["asks","1"]')
    assert decode_row(change.value or b"", Taken).next == 9
    assert [output.topic for output in commit.outputs] == ["requests", "requests"]


async def test_the_schema_of_the_first_request_is_kept_beside_the_offset() -> None:
    def decode(value: bytes, known: int | None) -> Decoded:
        if known not in {None, value[0]}:
            raise MalformedError("another schema")
        return Decoded({"who": "u", "text": value[1:].decode()}, value[0])

    queue = Queue()
    one = taking(queue)
    one._records._topic = dataclasses.replace(TOPIC, decode=decode)
    values = [b"\x05", b"\x07Hi", b"\x09Hi", b"\x07Hi"]  # the first has an empty text
    for offset, value in enumerate(values):
        await one._take([Record("asks", 1, offset, NOW, None, value, is_foreign=True)], offset + 1)
    assert [output.topic for output in queue.outputs] == ["dead-letters", "requests", "dead-letters", "requests"]
    rows = [decode_row(commit.changes[0].value or b"", Taken) for commit in queue.commits]
    assert [row.schema_id for row in rows] == [None, 7, 7, 7]
    assert encode(Taken(5)) == b'{"next":5}', "as the version before writes it"


async def test_a_record_that_kafka_refuses_takes_no_other_with_it() -> None:
    queue = Queue(refuses=b"huge")
    await taking(queue)._take([record(5), record(6, "huge"), record(7)], 8)
    assert [output.topic for output in queue.outputs] == ["requests", "dead-letters", "requests"]
    letter = queue.outputs[1]
    assert (letter.value, dict(letter.headers)["source-topic"]) == (b"", b"asks")
    assert [decode_row(commit.changes[0].value or b"", Taken).next for commit in queue.commits] == [6, 7, 8]


@pytest.mark.parametrize(
    ("sent_at", "timestamp"), [(NOW - 5, NOW - 5), (NOW + 5, NOW), (NOW - 10_000_000, NOW - 1_000_000)]
)
async def test_a_request_has_its_records_time_or_one_that_is_kept_long_enough(sent_at: int, timestamp: int) -> None:
    queue = Queue()
    await taking(queue)._take([record(5, at=sent_at)], 6)
    (request,) = queue.outputs
    assert request.timestamp == timestamp
    assert dict(request.headers)["intake-from"] == b"asks:1:5:%d" % min(sent_at, NOW)


async def test_a_record_that_is_older_than_erasures_gives_no_request_and_leaves_no_copy() -> None:
    queue = Queue()
    assert SETTINGS.erased_horizon_s is not None
    oldest = NOW - 1000 * SETTINGS.erased_horizon_s
    await taking(queue)._take([record(5, at=oldest - 1), record(6, at=oldest)], 7)
    letter, request = queue.outputs
    assert (letter.topic, letter.value, request.topic) == ("dead-letters", b"", "requests")
    assert b"older than the 32 days" in (dict(letter.headers)["error-message"] or b"")


async def test_an_unexpected_error_is_of_one_record(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any, **__: Any) -> None:
        raise KeyError("secret")

    monkeypatch.setattr(maker, "request_of", fails)
    queue = Queue()
    await taking(queue)._take([record(5)], 6)
    (letter,) = queue.outputs
    assert letter.topic == "dead-letters"
    assert b"secret" not in (dict(letter.headers)["error-message"] or b"")


REPORTS = EgressRules(
    topic="reports",
    on=("done", "error"),
    fields={
        "id": "request_id",
        "who": "user_name",
        "code": "error.code",
        "why": "error.message",
        "sent": "source.sent",
        "deep": "source.body.deep",
        "said": "answer",
        "at": "timing.requested_at",
    },
)
ASKS = IntakeRules(
    topic="asks", fields={"request_id": "id", "user_id": "who", "prompt": "text", "store": "store"}, tenant="shop"
)
REPORTED = foreign_topics(Policy(intake=(ASKS,), egress=(REPORTS,))).intakes["asks"]


def reported(value: bytes | None) -> list[Outgoing]:
    taken = IntakeRecords(SETTINGS, REPORTED, cast(Any, Clock()))
    return taken.outputs_of(Record("asks", 1, 5, NOW - 3, None, value, is_foreign=True))


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (b'{"id": "a", "who": 7, "sent": 1.50, "body": {"deep": "x"}}', ("a", "7", 1.5, "x")),
        (b'{"id": 17, "who": null, "sent": {"a": [1]}}', ("17", None, {"a": [1]}, None)),
        (b'{"who": "ann", "text": ""}', ("asks-1-5", "ann", None, None)),
        (b'{"id": "a b", "who": "u", "sent": null}', (None, "u", None, None)),
        (b'{"id": "a", "who": "%s", "sent": "\\u00e9"}' % (b"u" * 200), ("a", None, "\u00e9", None)),
        (b'{"id": "a", "who": "u", "sent": "s", "x": %s%s}' % (b"[" * 99, b"]" * 99), ("a", "u", "s", None)),
        (b'{"id": "a", "who": "u", "sent": 5, "x": NaN}', ("a", "u", 5, None)),
        (b'{"id": "a", "who": "u", "sent": "\\ud800", "x": NaN}', ("a", "u", None, None)),
        (b'{"id": "a", "who": "u", "sent": {"a": 1}, "x": 1%s}' % (b"0" * 400), ("a", "u", None, None)),
        (b'{"id": "a", "who": "u", "sent": "s", "sent": 2}', ("a", "u", 2, None)),
        (b'{"id": "a"', (None, None, None, None)),
        (b'["id", "a"]', (None, None, None, None)),
        (b"\xff\x00", (None, None, None, None)),
        (b"", (None, None, None, None)),
        (None, (None, None, None, None)),
        (b'{"id": "a", "who": "u", "sent": "%s", "body": {"deep": 1}}' % (b"x" * 17_000), ("a", "u", None, 1)),
        (b'{"id": "a", "who": "u", "text": "Hi", "sent": "%s"}' % (b"x" * 17_000), ("a", "u", None, None)),
    ],
)
def test_a_record_that_gives_no_request_is_told_as_far_as_it_can_be_read(value: bytes | None, told: Any) -> None:
    letter, report = reported(value)
    record = json.loads(report.value or b"")
    assert (letter.topic, report.topic, report.by_key) == ("dead-letters", "reports", True)
    assert (record["id"], record["who"], record["sent"], record["deep"]) == told
    cause = dict(letter.headers)
    assert (record["code"], record["why"]) == ("invalid_request", (cause["error-message"] or b"").decode())
    assert (record["said"], record["at"]) == (None, NOW - 3)
    assert report.key == (f"shop/{told[1]}" if told[1] else "asks-1-5").encode()


def test_what_an_egress_names_travels_on_the_request_as_it_came() -> None:
    value = b'{"who": "u", "text": "Hi", "sent": 12345678901234567890.10, "body": {"deep": {"a": [1.50]}}, "x": 1}'
    (request,) = reported(value)
    sent = dict(request.headers)[INTAKE_SOURCE]
    assert sent == b'{"body.deep":{"a": [1.50]},"sent":12345678901234567890.10}'
    assert INTAKE_SOURCE not in dict(reported(b'{"who": "u", "text": "Hi"}')[0].headers)
    (letter, _) = reported(b'{"who": "u", "text": "Hi", "sent": "%s"}' % (b"x" * (16 << 10)))
    why = (dict(letter.headers)["error-message"] or b"").decode()
    assert why == "the fields that answers repeat, `sent`, have 16395 bytes as JSON, the limit is 16384"


def test_what_no_json_can_hold_is_no_value() -> None:
    values = {"a": {1: 2**63}, "b": "\ud800", "c": {True: 3}, "d": {"e": float("nan")}, "f": msgspec.Raw(b"1")}
    found = {path: bytes(value) for path, value in values_at(values, ["a", "b", "c", "d.e", "d.f", "f"]).items()}
    assert found == {"a": b'{"1":9223372036854775808}', "d.e": b"null", "f": b"1"}


def test_what_is_not_to_be_stored_does_not_travel_where_a_model_reads_it() -> None:
    rules = msgspec.structs.replace(REPORTS, fields={"q": "source.text", "n": "source.sent"})
    topic = foreign_topics(Policy(intake=(ASKS,), egress=(rules,))).intakes["asks"]
    for store, wanted in ((b"true", b'{"sent":1,"text":"Hi"}'), (b"false", b'{"sent":1}')):
        value = b'{"who": "u", "text": "Hi", "sent": 1, "store": %s}' % store
        taken = IntakeRecords(SETTINGS, topic, cast(Any, Clock()))
        (request,) = taken.outputs_of(Record("asks", 1, 5, NOW, None, value, is_foreign=True))
        assert dict(request.headers)[INTAKE_SOURCE] == wanted


async def test_what_kafka_rejects_is_told_unless_it_rejects_that_too() -> None:
    for refuses, topics in ((b'"prompt"', ["dead-letters", "reports"]), (b'"', ["dead-letters"])):
        queue = Queue(refuses)
        one = taking(queue, REPORTED)
        await one._take([record(5)], 6)
        assert [output.topic for output in queue.outputs] == topics
        assert [decode_row(commit.changes[0].value or b"", Taken).next for commit in queue.commits] == [6]


async def test_a_record_that_is_older_than_erasures_is_told_without_what_its_sender_wrote() -> None:
    taken = IntakeRecords(SETTINGS, REPORTED, cast(Any, Clock()))
    letter, report = taken.outputs_of(Record("asks", 1, 5, 1, None, b'{"id": "a", "sent": 1}', is_foreign=True))
    assert (letter.value, json.loads(report.value or b"")["sent"], report.key) == (b"", None, b"asks-1-5")


def test_each_foreign_partition_has_one_reader() -> None:
    readers = [reader_of(TopicPartition("asks", number), 4) for number in range(8)]
    assert sorted(readers) == [0, 0, 1, 1, 2, 2, 3, 3]
    assert len({reader_of(TopicPartition(f"topic-{number}", 0), 4) for number in range(20)}) > 1


def test_transactions_are_small_and_cover_every_offset() -> None:
    consumed: Any = [
        SimpleNamespace(key=b"", value=b"x" * 1000, headers=(), offset=2 * number) for number in range(450)
    ]
    chunks = _chunks(consumed, 1000)
    assert [len(chunk) for chunk, _ in chunks] == [200, 200, 50]
    assert [behind for _, behind in chunks] == [399, 799, 1000]
    for key, value, headers in (
        (b"", b"x" * (1 << 20), ()),
        (b"x" * (1 << 20), b"", ()),
        (b"", b"", [("x" * (1 << 20), b"")]),
    ):
        large: Any = [SimpleNamespace(key=key, value=value, headers=headers, offset=number) for number in range(5)]
        assert [len(chunk) for chunk, _ in _chunks(large, 5)] == [2, 2, 1]
    assert _chunks([], 5) == []


@dataclass
class Taken200:
    """A foreign topic that never ends, read 200 records at a time, and a broker that knows what has ended."""

    handover: Handover = field(default_factory=Handover)
    written: int = 0

    async def position(self) -> int:
        return self.written

    async def poll(self, _wait_ms: int) -> Any:
        await asyncio.sleep(0)
        value = b'{"who": "u", "text": "Hi"}'
        polled = [
            ConsumerRecord("asks", 1, self.written + one, NOW, 0, None, value, None, 0, len(value), ())
            for one in range(200)
        ]
        return polled, self.written + 200

    def put(self, commit: Commit) -> asyncio.Future[None]:
        assert commit.delivered is not None
        receipts = [SimpleNamespace(partition=2, offset=self.written + one) for one in range(200)]
        commit.delivered(cast(Any, receipts))
        self.written += 200
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        done.set_result(None)
        return done

    async def committed(self, number: int) -> Handover:
        assert number == 2
        return self.handover


async def test_a_user_has_a_window_of_requests_that_have_not_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the topic holds: reading goes on as the handover of the user's partition says that some have ended."""
    monkeypatch.setattr(taking_module, "_WAIT_S", 0.0)
    topic, stop = Taken200(), asyncio.Event()
    context = SimpleNamespace(queue=topic)
    store = SimpleNamespace(get=lambda *_: None)
    partition = SimpleNamespace(context=context, ownership=SimpleNamespace(clock=Clock(), store=store))
    taking = Taking(SETTINGS, cast(Any, partition), AT, TOPIC, stop, WrittenAhead(128, topic.committed))
    reading = asyncio.create_task(taking.read(cast(Any, topic)))
    for head, ahead, written in ((0, 0, 200), (100, 0, 200), (100, 6, 400), (300, 0, 400), (310, 0, 600)):
        topic.handover = Handover(head=head, ahead=tuple(range(head + 1, head + 1 + ahead)))
        for _ in range(600):
            await asyncio.sleep(0)
        assert topic.written == written, (head, ahead)
    stop.set()
    await reading
