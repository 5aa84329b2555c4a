from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from agents.controls import Controls
from agents.turns import Turns
from app.delivery.cancels import Cancels
from app.delivery.commits.commit import Commit
from app.delivery.partition import State
from app.delivery.record import CONTROLS, Record
from app.features.tool_rounds import ToolsOverKafka
from app.search.index import NoIndex
from app.settings import Settings
from app.wire.codec import FORWARDED, decode, encode
from app.wire.control import Cancel, Control, Erase, EraseConversation
from app.wire.erasure import Erasure
from app.wire.ids import partition_for
from tables import records
from tables.erasures import Scope, has_rows, mark_of
from tables.records import Conversation, Ended, Erased, KeptTurn, RowChange, Table
from tables.tool_calls import ToolRounds
from tests.unit.delivery.fake_partition import NOW, FakePartition, Own
from tests.unit.delivery.inflight_requests import ASKED_AT, inflight_of

SETTINGS = Settings(_env_file=None, partitions=4)
HERE = partition_for("ann", 4)
ANN = Erase(user_id="ann")


class Sink(NoIndex):
    """Records erasures; the test completes them."""

    def __init__(self) -> None:
        self.erasures: list[tuple[Scope, int]] = []
        self.waiting: list[Callable[[], object]] = []

    def erase(self, scope: Scope, until_ms: int, ended_ms: int, done: Callable[[], object], partition: int = 0) -> None:
        self.erasures.append((scope, until_ms))
        self.waiting.append(done)


class Bench:
    def __init__(self) -> None:
        self.partition = FakePartition(HERE)
        self.sink = Sink()
        self.cancels = Cancels()
        self.controls = Controls(SETTINGS, self.cancels, Turns(SETTINGS, self.sink), ToolsOverKafka(SETTINGS))
        self._offset = 0

    def receive(self, control: Any, at: int = NOW - 1000, headers: Any = (), user: str = "ann") -> Record:
        value, _ = encode(control)
        record = Record(CONTROLS, self.partition.number, self._offset, at, user.encode(), value, headers)
        self._offset += 1
        self.controls.receive(self.partition.real, record)
        return record

    @property
    def finished(self) -> list[Record | None]:
        return [commit.record for commit in self.partition.finished]


async def erased(bench: Bench, control: Any = ANN, **how: Any) -> Record:
    record = bench.receive(control, **how)
    for _ in range(20):
        await asyncio.sleep(0)
        while bench.sink.waiting:
            bench.sink.waiting.pop()()
    await bench.partition.idle()
    return record


async def test_erase_deletes_the_rows_and_writes_the_mark_before_milvus_is_asked() -> None:
    bench = Bench()
    bench.partition.put(Table.CONVERSATIONS, Conversation(1, (KeptTurn("r", "p", "a", 1),)), "ann", "c")
    bench.partition.put(Table.CONVERSATIONS, Conversation(1), "bob", "c")
    record = bench.receive(Erase(user_id="ann"))
    for _ in range(20):
        await asyncio.sleep(0)
    assert bench.sink.erasures == [(Scope("ann"), NOW - 1000)]
    assert bench.partition.row(Table.CONVERSATIONS, Conversation, "ann", "c") is None
    assert bench.partition.row(Table.CONVERSATIONS, Conversation, "bob", "c") is not None
    assert bench.partition.row(Table.ERASED, Erased, "ann") == Erased(NOW - 1000, indexed=0, applied=NOW)
    assert record not in bench.finished, "Milvus still has the rows"
    bench.sink.waiting.pop()()
    await bench.partition.idle()
    assert bench.partition.row(Table.ERASED, Erased, "ann") == Erased(NOW - 1000, indexed=NOW - 1000, applied=NOW)
    assert bench.finished[-1] is record


async def test_erase_is_sent_on_to_every_other_partition_once_and_with_its_time() -> None:
    bench = Bench()
    await erased(bench)
    sent = [output for commit in bench.partition.finished for output in commit.outputs if output.topic == "controls"]
    assert sorted(output.partition or 0 for output in sent) == sorted({0, 1, 2, 3} - {HERE})
    assert {decode(Control, output.value) for output in sent} == {Erase(user_id="ann")}
    assert {dict(output.headers)[FORWARDED] for output in sent} == {f"{HERE}@{NOW - 1000}".encode()}
    assert {output.key for output in sent} == {b"ann"}


async def test_erase_is_sent_to_sinks_with_its_mark() -> None:
    bench = Bench()
    await erased(bench)
    ((mark, sent),) = [
        (commit.changes, output)
        for commit in bench.partition.finished
        for output in commit.outputs
        if output.topic == "erasures"
    ]
    assert any(change.table is Table.ERASED for change in mark)
    assert (sent.key, sent.partition) == (b"ann", None)
    assert decode(Erasure, sent.value) == Erasure(user_id="ann", erased_at=NOW - 1000, created_at=NOW)


async def test_erase_that_was_sent_on_keeps_its_time_and_goes_no_further() -> None:
    bench = Bench()
    await erased(bench, at=NOW - 10, headers=((FORWARDED, b"1@%d" % (NOW - 5000)),))
    assert bench.partition.row(Table.ERASED, Erased, "ann") == Erased(NOW - 5000, indexed=NOW - 5000, applied=NOW)
    assert not [output for commit in bench.partition.finished for output in commit.outputs]
    assert bench.sink.erasures == [], "this partition never had anything of the user"


async def test_erase_that_was_sent_on_reaches_milvus_where_the_user_was() -> None:
    bench = Bench()
    bench.partition.put(Table.ENDED, Ended(1), "ann", "r1")
    await erased(bench, headers=((FORWARDED, b"1@%d" % (NOW - 5000)),))
    assert bench.sink.erasures == [(Scope("ann"), NOW - 5000)]


@pytest.mark.parametrize("value", [b"", b"1", b"1@", b"1@soon", b"1@-5", b"1@" + b"9" * 400])
async def test_erase_with_a_header_that_is_no_workers_has_its_records_time(value: bytes) -> None:
    bench = Bench()
    await erased(bench, headers=((FORWARDED, value),))
    assert bench.partition.row(Table.ERASED, Erased, "ann").at == NOW - 1000


async def test_erase_again_after_a_crash_does_what_is_left_and_no_more() -> None:
    bench = Bench()
    bench.partition.put(Table.ERASED, Erased(NOW - 1000), "ann")
    record = await erased(bench)
    assert bench.sink.erasures == [(Scope("ann"), NOW - 1000)]
    assert bench.finished == [record]


async def test_erase_from_a_fast_clock_counts_as_of_now() -> None:
    bench = Bench()
    await erased(bench, at=NOW + 3_600_000)
    assert bench.partition.row(Table.ERASED, Erased, "ann").at == NOW


async def test_erase_ends_older_answers_of_its_user() -> None:
    bench = Bench()
    older, other = inflight_of(request_id="older"), inflight_of(request_id="other", user_id="bob")
    fresh = inflight_of(request_id="fresh", at=NOW)
    bench.partition.ownership.inflight_requests = {inflight.key: inflight for inflight in (older, fresh, other)}
    await erased(bench, at=ASKED_AT + 5)
    assert [one.stop.reason for one in (older, fresh, other)] == ["cancelled", None, None]


def commits_of(bench: Bench, table: Table) -> list[int]:
    """How many rows of the table each commit has, the ones without left out."""
    counts = [sum(change.table is table for change in commit.changes) for commit in bench.partition.finished]
    return [count for count in counts if count]


async def test_erase_marks_first_and_deletes_in_small_commits_however_much_there_is() -> None:
    bench = Bench()
    for number in range(1200):
        bench.partition.put(Table.CONVERSATIONS, Conversation(1), "ann", f"c{number}")
        bench.partition.put(Table.CALLS, ToolRounds(at=1), "ann", f"r{number}")
    await erased(bench)
    marked, *rest = bench.partition.finished
    assert [change.table for change in marked.changes] == [Table.ERASED]
    assert max(len(commit.changes) for commit in rest) <= 500
    assert (sum(commits_of(bench, Table.CONVERSATIONS)), sum(commits_of(bench, Table.CALLS))) == (1200, 1200)
    assert not has_rows(bench.partition.ownership.store, "ann")


async def test_erase_leaves_conversations_that_have_begun_after_it() -> None:
    bench = Bench()
    old, new = Conversation(1), Conversation(NOW, erased_at=NOW - 1000)
    bench.partition.put(Table.CONVERSATIONS, old, "ann", "old")
    bench.partition.put(Table.CONVERSATIONS, old, "ann", "replaced")
    bench.partition.put(Table.CONVERSATIONS, new, "ann", "new")
    row = RowChange(Table.CONVERSATIONS, records.key("ann", "replaced"), records.encode(new))
    bench.partition.context.queue.put(Commit(None, (row,)))
    bench.receive(Erase(user_id="ann"))
    for _ in range(20):
        await asyncio.sleep(0)
    assert bench.sink.erasures == [], "the row that is on its way may turn out to be an old one"
    bench.partition.ownership.store.apply([row], {}, now_ms=0)
    bench.partition.context.queue.next_group()
    bench.partition.context.queue.done()
    while not bench.sink.waiting:
        await asyncio.sleep(0.01)
    bench.sink.waiting.pop()()
    await bench.partition.idle()
    left = {name: bench.partition.row(Table.CONVERSATIONS, Conversation, "ann", name) for name in ("new", "replaced")}
    assert left == {"new": new, "replaced": new}
    assert bench.partition.row(Table.CONVERSATIONS, Conversation, "ann", "old") is None


async def test_erase_that_a_crash_has_interrupted_goes_on_where_it_was() -> None:
    bench = Bench()
    bench.partition.put(Table.ERASED, Erased(NOW - 1000, applied=NOW - 900), "ann")
    for number in range(700):
        bench.partition.put(Table.CONVERSATIONS, Conversation(1), "ann", f"c{number}")
    await erased(bench)
    assert commits_of(bench, Table.CONVERSATIONS) == [500, 200]
    assert bench.partition.row(Table.ERASED, Erased, "ann").done


async def test_erase_hides_the_history_from_answers_that_begin_before_it_is_committed() -> None:
    bench = Bench()
    bench.partition.commits.clear()
    bench.receive(Erase(user_id="ann"))
    await asyncio.sleep(0)
    assert bench.partition.ownership.marks.of("ann", "c").marks == (Erased(NOW - 1000, applied=NOW),)
    assert mark_of(bench.partition.ownership.store, Scope("ann")) is None
    bench.partition.commits.set()
    for _ in range(20):
        await asyncio.sleep(0)
    assert mark_of(bench.partition.ownership.store, Scope("ann")) == Erased(NOW - 1000, applied=NOW)
    bench.sink.waiting.pop()()
    await bench.partition.idle()


@pytest.mark.parametrize(
    "control", [EraseConversation(user_id="ann", conversation_id="c"), Erase(user_id="ann", conversation_id="c")]
)
async def test_erase_of_a_conversation_leaves_the_others(control: Any) -> None:
    bench = Bench()
    for name in ("c", "d"):
        bench.partition.put(Table.CONVERSATIONS, Conversation(1), "ann", name)
        bench.partition.put(Table.CALLS, ToolRounds(at=1, conversation_id=name), "ann", f"calls-{name}")
    running = [inflight_of(request_id=name, conversation_id=name) for name in ("c", "d")]
    bench.partition.ownership.inflight_requests = {one.key: one for one in running}
    await erased(bench, control, at=ASKED_AT + 5)
    assert [one.stop.reason for one in running] == ["cancelled", None]
    left = [bench.partition.row(Table.CONVERSATIONS, Conversation, "ann", name) for name in ("c", "d")]
    assert left == [None, Conversation(1)]
    assert bench.partition.row(Table.CALLS, ToolRounds, "ann", "calls-c") is None
    assert bench.partition.row(Table.CALLS, ToolRounds, "ann", "calls-d") is not None
    assert bench.sink.erasures == [(Scope("ann", "c"), ASKED_AT + 5)]
    marks = bench.partition.ownership.marks
    assert (marks.of("ann", "c").at, marks.of("ann", "d").at) == (ASKED_AT + 5, 0)


async def test_erase_of_a_conversation_names_it_to_other_partitions_sinks_and_auditors() -> None:
    bench = Bench()
    await erased(bench, EraseConversation(user_id="ann", conversation_id="c"))
    outputs = [output for commit in bench.partition.finished for output in commit.outputs]
    sent = {decode(Control, one.value) for one in outputs if one.topic == "controls"}
    assert sent == {EraseConversation(user_id="ann", conversation_id="c")}
    (told,) = [decode(Erasure, one.value) for one in outputs if one.topic == "erasures"]
    assert (told.user_id, told.conversation_id, told.erased_at) == ("ann", "c", NOW - 1000)
    (audit,) = [one for commit in bench.partition.finished for one in commit.audit]
    assert (audit.user_id, audit.conversation_id) == ("ann", "c")


async def test_erase_of_a_conversation_and_of_its_user_have_marks_of_their_own() -> None:
    bench = Bench()
    await erased(bench, EraseConversation(user_id="ann", conversation_id="c"), at=NOW - 500)
    await erased(bench, at=NOW - 1000)
    marks = bench.partition.ownership.marks
    assert (marks.of("ann", "c").at, marks.of("ann", "d").at) == (NOW - 500, NOW - 1000)
    assert (marks.erased_at("ann"), marks.being_erased("ann")) == (NOW - 1000, {})


async def test_a_conversation_is_being_erased_until_milvus_is_done() -> None:
    bench = Bench()
    bench.receive(EraseConversation(user_id="ann", conversation_id="c"))
    await asyncio.sleep(0)
    assert bench.partition.ownership.marks.being_erased("ann") == {"c": NOW - 1000}
    for _ in range(20):
        await asyncio.sleep(0)
    assert bench.partition.ownership.marks.being_erased("ann") == {"c": NOW - 1000}
    bench.sink.waiting.pop()()
    await bench.partition.idle()
    assert bench.partition.ownership.marks.being_erased("ann") == {}


async def test_cancel_stays_open_until_its_request_has_ended() -> None:
    bench = Bench()
    inflight = inflight_of()
    bench.partition.ownership.inflight_requests[inflight.key] = inflight
    record = bench.receive(Cancel(user_id="ann", request_id="r1"))
    await bench.partition.idle()
    assert inflight.stop.reason == "cancelled"
    assert bench.finished == []
    inflight.on_commit[0]()
    await bench.partition.idle()
    assert bench.finished == [record]


async def test_cancel_of_a_cancelled_request_is_done_at_once() -> None:
    bench = Bench()
    inflight = inflight_of()
    bench.partition.ownership.inflight_requests[inflight.key] = inflight
    bench.receive(Cancel(user_id="ann", request_id="r1"))
    more = [bench.receive(Cancel(user_id="ann", request_id="r1")) for _ in range(100)]
    await bench.partition.idle()
    assert bench.finished == more
    assert len(inflight.on_commit) == 1


async def test_cancel_of_an_ended_or_an_old_request_is_done_at_once() -> None:
    bench = Bench()
    bench.partition.put(Table.ENDED, Ended(1), "ann", "r1")
    bench.partition.real.ownership.watermark.at = NOW - 399_999
    ended = bench.receive(Cancel(user_id="ann", request_id="r1"))
    old = bench.receive(Cancel(user_id="ann", request_id="never"), at=NOW - 400_000)
    await bench.partition.idle()
    assert bench.finished == [ended, old]


async def test_cancel_in_a_wrong_partition_is_a_dead_letter() -> None:
    bench = Bench()
    bench.partition.number = (HERE + 1) % 4
    bench.receive(Cancel(user_id="ann", request_id="r1"))
    await bench.partition.idle()
    (commit,) = bench.partition.finished
    assert b"murmur2" in dict(commit.outputs[0].headers)["error-message"]


async def test_erase_in_a_wrong_partition_holds_for_all() -> None:
    bench = Bench()
    bench.partition.number = (HERE + 1) % 4
    await erased(bench)
    assert bench.partition.row(Table.ERASED, Erased, "ann") is not None
    assert HERE in [output.partition for commit in bench.partition.finished for output in commit.outputs]


@pytest.mark.parametrize(("age_s", "left_s"), [(0, 300.0), (100, 200.0), (299, 1.0), (-50, 300.0)])
async def test_cancel_of_a_request_that_has_not_come_is_remembered_for_the_rest_of_five_minutes(
    age_s: int, left_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench()
    kept: list[tuple[object, float]] = []
    monkeypatch.setattr(bench.cancels, "remember", lambda key, _commit, _may_come, for_s: kept.append((key, for_s)))
    bench.receive(Cancel(user_id="ann", request_id="later"), at=NOW - 1000 * age_s)
    await bench.partition.idle()
    assert kept == [(("ann", "later"), left_s)]
    assert bench.finished == []


@pytest.mark.parametrize("answered_until", [None, NOW - 400_000])
async def test_cancel_is_remembered_while_requests_before_it_are_open(answered_until: int | None) -> None:
    """A partition without workers for an hour, or a user with many requests."""
    bench = Bench()
    bench.partition.real.ownership.watermark.at = answered_until
    bench.receive(Cancel(user_id="ann", request_id="parked"), at=NOW - 400_000)
    await bench.partition.idle()
    assert bench.finished == []
    for _ in range(3):
        await asyncio.sleep(0)
    assert bench.cancels.pop(("ann", "parked")) is not None


async def test_cancel_that_was_remembered_is_finished_once_its_request_has_ended() -> None:
    bench = Bench()
    record = bench.receive(Cancel(user_id="ann", request_id="later"), at=NOW)
    commit = bench.cancels.pop(("ann", "later"))
    assert commit is not None
    commit()
    await bench.partition.idle()
    assert bench.finished == [record]


@pytest.mark.parametrize("lost", ["state", "ownership"])
async def test_cancel_is_left_open_for_the_next_owner(lost: str) -> None:
    bench = Bench()
    bench.receive(Cancel(user_id="ann", request_id="later"), at=NOW)
    commit = bench.cancels.pop(("ann", "later"))
    assert commit is not None
    if lost == "state":
        bench.partition.state = State.TAKING_OVER
    else:
        bench.partition.ownership = Own()
    commit()
    await bench.partition.idle()
    assert bench.finished == []


@pytest.mark.parametrize(("before_ms", "is_older"), [(1, True), (0, True), (-1, False)])
async def test_erase_counts_for_requests_of_its_own_millisecond(before_ms: int, is_older: bool) -> None:
    bench = Bench()
    inflight = inflight_of(at=NOW - 1000 - before_ms)
    bench.partition.ownership.inflight_requests[inflight.key] = inflight
    await erased(bench)
    assert (inflight.stop.reason is not None) == is_older


async def test_erase_under_way_has_an_age_until_milvus_is_done() -> None:
    bench = Bench()
    bench.partition.put(Table.CONVERSATIONS, Conversation(1), "ann", "c")
    bench.receive(Erase(user_id="ann"))
    await asyncio.sleep(0.02)
    assert bench.controls.oldest_erasure_s > 0
    await erased(bench)
    assert bench.controls.oldest_erasure_s == 0
