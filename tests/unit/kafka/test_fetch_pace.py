from __future__ import annotations

import inspect
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.consumer.fetcher import Fetcher

from app.kafka import fetch_pace
from app.kafka.fetch_pace import FetchPace, window_ms


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(fetch_pace.time, "monotonic", lambda: now[0])
    return now


def consumer() -> Any:
    return SimpleNamespace(_fetcher=SimpleNamespace(_fetch_min_bytes=1, _fetch_max_wait_ms=500))


def test_fetch_pace_collects_while_records_come_fast_and_not_before_or_after(clock: list[float]) -> None:
    records = consumer()
    pace = FetchPace(records)
    waits = []
    for rate in (50, 400, 1000, 50):
        for _ in range(500):
            clock[0] += 0.01
            pace.polled(rate // 100 or 1)
        waits.append(records._fetcher._fetch_max_wait_ms)
    assert waits == [500, 15, 6, 500]
    assert records._fetcher._fetch_min_bytes == 1


def test_window_is_the_time_in_which_some_records_come_within_bounds() -> None:
    assert [window_ms(rate) for rate in (201, 400, 1000, 1500, 100_000)] == [16, 15, 6, 4, 4]


def test_fetch_pace_changes_what_the_installed_aiokafka_reads_at_each_fetch() -> None:
    source = inspect.getsource(Fetcher._get_actions_per_node)
    assert "self._fetch_max_wait_ms," in source
    assert "self._fetch_min_bytes," in source
    assert "self._fetcher = Fetcher(" in inspect.getsource(AIOKafkaConsumer.start)
