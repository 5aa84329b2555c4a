from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tables import records
from tables.erasures import ErasedUntil, Marks, PartitionMarks, Scope, erasure, has_marks, mark_of, marks_within
from tables.expiry import some
from tables.records import Conversation, Erased, KeptTurn, RowChange, Table
from tables.store import PartitionStore
from tables.tool_calls import ToolRounds, row
from tests.simulation.memory_store import Disk, MemoryStore

names = st.text(max_size=3)
users = names.filter(bool)


def empty_store() -> MemoryStore:
    return MemoryStore.open_on(Disk(), Path("p"), owner="test")


@given(users, names | st.none())
def test_the_key_of_a_mark_says_what_it_is_about(user: str, conversation: str | None) -> None:
    scope = Scope(user, conversation)
    assert Scope.of_key(scope.key) == scope


def test_a_worker_that_knows_no_marks_of_conversations_finds_a_user_without_name_in_their_keys() -> None:
    assert records.key_parts(Scope("ann", "c").key)[0] == ""


@pytest.mark.parametrize("raw", [b'["a","b"]', b"[]", b'["a","b","c"]'])
def test_other_keys_are_no_marks(raw: bytes) -> None:
    with pytest.raises(ValueError, match="no mark"):
        Scope.of_key(raw)


@given(users, names, users, names)
def test_a_scope_includes_its_conversation_or_all_of_its_user(user: str, one: str, other: str, two: str) -> None:
    assert Scope(user).includes(other, two) == (user == other)
    assert Scope(user, one).includes(other, two) == ((user, one) == (other, two))


@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from(["", "x", None]), st.integers(1, 9))))
def test_a_conversation_is_erased_up_to_the_later_of_the_two(erasures: list[tuple[str, str | None, int]]) -> None:
    until = ErasedUntil()
    for user, conversation, at in erasures:
        until.add(Scope(user, conversation), at)
    for user in "ab":
        for conversation in ("", "x"):
            met = [at for one, name, at in erasures if one == user and name in {None, conversation}]
            assert until.at(user, conversation) == max(met, default=0)


def test_older_erasures_are_told_from_newer_ones() -> None:
    until = ErasedUntil()
    assert [until.add(Scope("ann", "c"), at) for at in (5, 5, 4, 6)] == [True, False, False, True]
    until.forget(Scope("ann", "c"))
    assert until.at("ann", "c") == 0


def test_marks_hide_and_cover_what_any_of_them_does() -> None:
    marks = Marks((Erased(10, indexed=10, applied=12), Erased(20, applied=25)))
    assert marks.at == 20
    assert [marks.cover(at) for at in (10, 20, 21)] == [True, True, False]
    assert [marks.hide(Conversation(99, erased_at=at)) for at in (10, 20)] == [True, False]
    assert [marks.forbid(21, begun) for begun in (None, 25, 26)] == [False, True, True]
    assert [marks.forbid(26, begun) for begun in (None, 25, 27)] == [False, True, False]
    assert not Marks().cover(0)


@given(
    st.sampled_from(["ann", "an", 'a"b', "a,b", "[", "å", "ann\\"]), st.sampled_from(["ann", "anna", 'a"', "å", "["])
)
def test_an_erasure_takes_all_conversations_of_the_user_and_no_other(user: str, other: str) -> None:
    store = MemoryStore.open_on(Disk(), Path("p"), owner="test")
    rows = [
        RowChange(Table.CONVERSATIONS, records.key(who, conversation), records.encode(Conversation(1)))
        for who in {user, other}
        for conversation in ("default", "x", "")
    ]
    store.apply(rows, {}, now_ms=0)
    deletions = [row for row in erasure(store, Scope(user), Erased(2)) if row is not None]
    store.apply(deletions, {}, now_ms=0)
    left = {records.key_parts(key)[0] for key, _ in store.scan(Table.CONVERSATIONS)}
    assert left == {other} - {user}


@given(names, names)
def test_an_erasure_of_a_conversation_takes_that_one_alone(conversation: str, other: str) -> None:
    store = empty_store()
    keys = {records.key("ann", name) for name in (conversation, other)} | {records.key("an", conversation)}
    store.apply([RowChange(Table.CONVERSATIONS, one, records.encode(Conversation(1))) for one in keys], {}, now_ms=0)
    deletions = [row for row in erasure(store, Scope("ann", conversation), Erased(2)) if row is not None]
    assert [change.key for change in deletions] == [records.key("ann", conversation)]


def test_an_erasure_of_a_conversation_takes_the_calls_of_its_older_answers() -> None:
    store = empty_store()
    rounds = {"old": (1, "c"), "new": (3, "c"), "other": (1, "d"), "of-an-older-worker": (1, "")}
    rows = [row("ann", name, ToolRounds(at, conversation_id=of)) for name, (at, of) in rounds.items()]
    store.apply(rows, {}, now_ms=0)
    deletions = [one for one in erasure(store, Scope("ann", "c"), Erased(2)) if one is not None]
    assert [one.key for one in deletions] == [records.key("ann", "old")]
    everything = [one for one in erasure(store, Scope("ann"), Erased(2)) if one is not None]
    assert {records.key_parts(one.key)[1] for one in everything} == {"old", "other", "of-an-older-worker"}


def test_marks_are_found_by_what_they_are_about() -> None:
    store = empty_store()
    for scope in (Scope("ann", "c"), Scope("ann", "d"), Scope("anna", "c"), Scope("bob")):
        store.apply([RowChange(Table.ERASED, scope.key, records.encode(Erased(7)))], {}, now_ms=0)
    assert (mark_of(store, Scope("ann")), mark_of(store, Scope("ann", "c"))) == (None, Erased(7))
    assert [name for name, _ in marks_within(store, "ann")] == ["c", "d"]
    assert [has_marks(store, user) for user in ("ann", "bob", "cy")] == [True, True, False]


@pytest.mark.parametrize("scope", [Scope("ann"), Scope("ann", "c")])
def test_marks_are_read_again_once_one_is_decided_or_written(tmp_path: Path, scope: Scope) -> None:
    store = PartitionStore.open(tmp_path, now_ms=0, tombstones_kept_ms=1)
    marks = PartitionMarks(store)
    for at in (3, 5, 0):
        assert marks.of("ann", "c").at != at
        store.apply([RowChange(Table.ERASED, scope.key, records.encode(Erased(at)) if at else None)], {}, now_ms=0)
        with marks.deciding(scope, Erased(9)):
            assert marks.of("ann", "c").at == 9
        assert marks.of("ann", "c").at == at


def test_long_rows_end_a_slice_sooner() -> None:
    store = empty_store()
    long = records.encode(Conversation(1, (KeptTurn("r", "p" * 400_000, "a", 1),)))
    rows = [RowChange(Table.CONVERSATIONS, records.key("u", f"{n}"), long) for n in range(30)]
    store.apply(rows, {}, now_ms=0)
    deletions, slices, more = erasure(store, Scope("u"), Erased(2)), [], True
    while more:
        found, more = some(deletions)
        slices.append(len(found))
    assert sum(slices) == 30
    assert max(slices) <= 11
