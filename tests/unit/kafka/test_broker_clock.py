from __future__ import annotations

import time

import pytest
from aiokafka.structs import RecordMetadata

from app.kafka.broker_clock import YEAR_2000_MS, BrokerClock

BROKER_MS = 2 * 10**12


def receipt(timestamp: int, kind: int = 1) -> RecordMetadata:
    return RecordMetadata("tokens", 0, None, 0, timestamp, kind, -1)


@pytest.fixture
def monotonic(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    at = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: at[0])
    monkeypatch.setattr(time, "time_ns", lambda: 10**18)
    return at


def test_clock_is_the_brokers_however_wrong_the_process_is(monotonic: list[float]) -> None:
    clock = BrokerClock()
    clock.acknowledged(receipt(5 * BROKER_MS), monotonic[0])
    assert clock.now() == 5 * BROKER_MS
    monotonic[0] += 12.5
    assert clock.now() == 5 * BROKER_MS + 12_500


def test_slow_acknowledgement_does_not_set_the_clock_back(monotonic: list[float]) -> None:
    clock = BrokerClock()
    clock.acknowledged(receipt(BROKER_MS), monotonic[0])
    monotonic[0] += 10
    clock.acknowledged(receipt(BROKER_MS + 7000), monotonic[0])  # it took three seconds to get here
    assert clock.now() == BROKER_MS + 10_000
    clock.acknowledged(receipt(BROKER_MS + 11_000), monotonic[0])  # and this one came faster than the first
    assert clock.now() == BROKER_MS + 11_000


def test_clock_is_the_processs_own_until_the_broker_has_told_its_time(monotonic: list[float]) -> None:
    clock = BrokerClock()
    clock.acknowledged(receipt(BROKER_MS, kind=0), monotonic[0])  # a topic whose timestamps are the producers'
    assert clock.now() == 10**12


def test_timestamp_is_believed_up_to_a_second_ahead(monotonic: list[float]) -> None:
    clock = BrokerClock()
    clock.acknowledged(receipt(BROKER_MS), monotonic[0])
    assert clock.time_of(BROKER_MS + 900) == BROKER_MS + 900
    assert clock.time_of(BROKER_MS + 1100) == BROKER_MS
    assert clock.time_of(YEAR_2000_MS) == YEAR_2000_MS


@pytest.mark.parametrize("timestamp", [-(10**15), -1, 0, 5, YEAR_2000_MS - 1, 2**63 - 1])
def test_a_timestamp_that_no_clock_has_shown_is_the_current_time(monotonic: list[float], timestamp: int) -> None:
    clock = BrokerClock()
    clock.acknowledged(receipt(BROKER_MS), monotonic[0])
    assert clock.time_of(timestamp) == BROKER_MS


def test_a_clock_that_is_known_to_a_few_seconds_moves_no_timestamp_back(monotonic: list[float]) -> None:
    clock, sent_at = BrokerClock(), monotonic[0]
    monotonic[0] += 2.0  # the acknowledgement comes to a worker that was suspended meanwhile
    clock.acknowledged(receipt(BROKER_MS), sent_at)
    assert clock.now() == BROKER_MS
    assert clock.time_of(BROKER_MS + 2900) == BROKER_MS + 2900
    assert clock.time_of(BROKER_MS + 3100) == BROKER_MS
    clock.acknowledged(receipt(BROKER_MS + 2000), monotonic[0])  # a quick one is more exact
    assert clock.now() == BROKER_MS + 2000
    assert clock.time_of(BROKER_MS + 3100) == BROKER_MS + 2000
