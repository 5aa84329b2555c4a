from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tables.conversations import MAX_BYTES, MemoryRules
from tables.records import Conversation, KeptTurn, encode

times = st.integers(0, 10_000)
rules_of = st.builds(MemoryRules, turns=st.integers(0, 5), ttl_ms=st.integers(0, 5_000))


def turn(number: int, at: int, size: int = 1) -> KeptTurn:
    return KeptTurn(f"r{number}", "q" * size, "a" * size, at)


@given(rules_of, st.lists(st.integers(0, 3_000), max_size=12))
def test_memory_is_the_last_turns_since_the_last_silence(rules: MemoryRules, pauses: list[int]) -> None:
    conversation, now = None, 0
    expected: list[KeptTurn] = []
    for number, pause in enumerate(pauses):
        now += pause
        if pause > rules.ttl_ms:
            expected = []
        expected.append(turn(number, now))
        conversation = rules.remember(conversation, expected[-1], now)
        expected = expected[-rules.turns :] if rules.turns else []
        assert list(rules.visible(conversation, now)) == expected


@given(rules_of, times, times)
def test_the_same_turn_is_remembered_once(rules: MemoryRules, at: int, again: int) -> None:
    once = rules.remember(None, turn(1, at), at)
    twice = rules.remember(once, turn(1, again), at)
    assert len(twice.turns) <= 1
    if rules.turns:
        assert twice == once


@given(rules_of, times, times)
def test_what_a_request_sees_depends_on_its_own_time_alone(rules: MemoryRules, last: int, asked: int) -> None:
    conversation = Conversation(last, (turn(1, last),))
    seen = rules.visible(conversation, asked)
    assert bool(seen) == (rules.turns > 0 and asked - last <= rules.ttl_ms)


def test_a_record_stays_far_below_what_a_broker_takes() -> None:
    rules, conversation = MemoryRules(10, 1_000), None
    for number in range(10):
        conversation = rules.remember(conversation, turn(number, number, size=60_000), number)
    assert conversation is not None
    assert len(encode(conversation)) <= MAX_BYTES + 100
    assert conversation.turns[-1].request_id == "r9"


def test_one_turn_alone_is_kept_whatever_its_size() -> None:
    kept = MemoryRules(10, 1_000).remember(None, turn(1, 0, size=MAX_BYTES), 0)
    assert len(kept.turns) == 1


def test_a_memory_of_no_turns_keeps_none() -> None:
    assert MemoryRules(turns=0, ttl_ms=5).remember(None, turn(1, 0), 0).turns == ()


def test_as_many_turns_as_fit_are_kept() -> None:
    rules = MemoryRules(turns=5, ttl_ms=5)
    large = rules.remember(None, turn(1, 0, MAX_BYTES // 3), 0)
    assert [one.request_id for one in rules.remember(large, turn(2, 0, MAX_BYTES // 3), 0).turns] == ["r2"]
    small = rules.remember(large, turn(2, 0, MAX_BYTES // 9), 0)
    assert [one.request_id for one in rules.remember(small, turn(3, 0, MAX_BYTES // 9), 0).turns] == ["r2", "r3"]
