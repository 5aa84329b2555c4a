from __future__ import annotations

from collections import Counter
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from models.interface.chat import ModelCall
from models.interface.generation import Usage
from tables import records
from tables.conversations import MemoryRules
from tables.erasures import Scope
from tables.expiry import tombstones
from tables.records import Conversation, Ended, Erased, RowChange, Table
from tables.tool_calls import PROGRESS, ResultsPosition, ToolRound, ToolRounds, row
from tests.simulation.memory_store import Disk, MemoryStore

RULES = MemoryRules(turns=3, ttl_ms=100)
ages = st.lists(st.integers(0, 1000), max_size=8)


def store_with(conversations: list[int], ended: list[int], erased: list[int]) -> MemoryStore:
    store = MemoryStore.open_on(Disk(), Path("p"), owner="test")
    values = {
        Table.CONVERSATIONS: {records.key("u", f"c{n}"): Conversation(at) for n, at in enumerate(conversations)},
        Table.ENDED: {records.key("u", f"r{n}"): Ended(at) for n, at in enumerate(ended)},
        Table.ERASED: {records.key(f"u{n}"): Erased(at, indexed=at) for n, at in enumerate(erased)},
    }
    rows = [RowChange(table, key, records.encode(value)) for table, of in values.items() for key, value in of.items()]
    store.apply(rows, {}, now_ms=0)
    return store


@given(ages, ages, ages, st.integers(0, 1500))
@settings(suppress_health_check=[HealthCheck.too_slow])
def test_a_sweep_deletes_what_is_past_its_own_horizon_and_nothing_else(
    conversations: list[int], ended: list[int], erased: list[int], watermark: int
) -> None:
    store = store_with(conversations, ended, erased)
    scanned: Counter[Table] = Counter()
    rows = tombstones(store, RULES, ended_ms=200, erased_ms=300, watermark=watermark, scanned=scanned)
    store.apply([row for row in rows if row is not None], {}, now_ms=0)
    assert [scanned[t] for t in (Table.CONVERSATIONS, Table.ENDED, Table.ERASED)] == [
        *map(len, (conversations, ended, erased))
    ]
    assert [records.decode_row(raw, Conversation).last_activity for _, raw in store.scan(Table.CONVERSATIONS)] == [
        at for at in conversations if watermark - at <= 100
    ]
    assert [records.decode_row(raw, Ended).at for _, raw in store.scan(Table.ENDED)] == [
        at for at in ended if watermark - at <= 200
    ]
    assert [records.decode_row(raw, Erased).at for _, raw in store.scan(Table.ERASED)] == [
        at for at in erased if watermark - at <= 300
    ]


def test_a_conversation_that_goes_on_during_a_sweep_is_not_swept() -> None:
    store = store_with([0, 0], [], [])
    rows = tombstones(store, RULES, ended_ms=1, erased_ms=1, watermark=1000, scanned=Counter())
    first = next(rows)
    assert first is not None
    (later,) = {key for key, _ in store.scan(Table.CONVERSATIONS)} - {first.key}
    store.apply([RowChange(Table.CONVERSATIONS, later, records.encode(Conversation(999)))], {}, now_ms=0)
    assert list(rows) == [None]


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=8), st.integers(0, 1500), st.integers(0, 500))
def test_what_a_request_after_the_watermark_builds_on_is_not_swept(last: list[int], watermark: int, later: int) -> None:
    store = store_with(last, [], [])
    asked = watermark + later
    seen = {n for n, at in enumerate(last) if not RULES.expired(Conversation(at), asked)}
    swept = {
        records.key_parts(row.key)[1]
        for row in tombstones(store, RULES, ended_ms=1, erased_ms=1, watermark=watermark, scanned=Counter())
        if row is not None
    }
    assert not swept & {f"c{n}" for n in seen}


def test_marks_that_protect_what_is_kept_for_ever_are_kept_for_ever() -> None:
    store = store_with([], [], [0, 900])
    seen: list[tuple[Scope, int]] = []
    rows = tombstones(
        store,
        RULES,
        ended_ms=1,
        erased_ms=None,
        watermark=1 << 50,
        scanned=Counter(),
        on_mark=lambda scope, mark: seen.append((scope, mark.at)),
    )
    assert list(rows) == [None, None]
    assert seen == [(Scope("u0"), 0), (Scope("u1"), 900)]


def test_a_mark_stays_until_its_erasure_is_done() -> None:
    store = MemoryStore.open_on(Disk(), Path("p"), owner="test")
    store.apply([RowChange(Table.ERASED, records.key("u"), records.encode(Erased(0, indexed=-1)))], {}, now_ms=0)
    assert list(tombstones(store, RULES, ended_ms=1, erased_ms=1, watermark=1000, scanned=Counter())) == [None]


def test_calls_of_answers_that_have_ended_long_ago_are_swept() -> None:
    """The end of an answer deletes its row; a row that an owner without the table has left goes by its age."""
    store = MemoryStore.open_on(Disk(), Path("p"), owner="test")
    usage = Usage(1, 1)
    for request, asked_at in (("old", 10), ("new", 100)):
        one = ToolRound(0, "", (ModelCall("f", "{}", "id"),), usage, asked_at, asked_at + 5)
        store.apply([row("u", request, ToolRounds(0).asked(one))], {}, now_ms=0)
    progress = RowChange(Table.CALLS, PROGRESS, records.encode(ResultsPosition(3)))
    store.apply([progress], {}, now_ms=0)
    found = tombstones(store, MemoryRules(1, 1), ended_ms=0, erased_ms=None, watermark=50, scanned=Counter())
    assert [change for change in found if change is not None] == [RowChange(Table.CALLS, records.key("u", "old"), None)]
