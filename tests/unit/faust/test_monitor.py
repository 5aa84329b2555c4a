"""The caching monitor reports what Faust's own does."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from faust.sensors.prometheus import FaustMetrics, PrometheusMonitor
from faust.types import TP
from prometheus_client import CollectorRegistry, generate_latest

from app.faust.monitor import CachingMonitor


class Owner:
    """Of a stream: something that can be referred to weakly."""


class FakeStream:
    task_owner = Owner()
    shortlabel = "Stream: Topic: requests"


async def reported(kind: type[PrometheusMonitor]) -> list[str]:
    registry = CollectorRegistry()
    monitor = kind(FaustMetrics.create(registry, "faust"))
    streams: list[Any] = [FakeStream(), FakeStream()]

    def some_records(first: int) -> None:
        for offset in range(first, first + 6):
            tp = TP(f"topic-{offset % 2}", offset % 3)
            monitor.on_message_in(tp, offset, SimpleNamespace())
            monitor.track_tp_end_offset(tp, offset + 1)
            state = monitor.on_stream_event_in(tp, offset, streams[offset % 2], None)
            monitor.on_stream_event_out(tp, offset, streams[offset % 2], None, state)

    some_records(0)
    monitor._clear_partition_related_metrics()
    some_records(3)
    lines = generate_latest(registry).decode().splitlines()
    timed = ("latency", "_created", "runtime")
    return [line for line in lines if not any(word in line for word in timed)]


async def test_metrics_are_those_of_faust_also_after_a_rebalance() -> None:
    assert await reported(CachingMonitor) == await reported(PrometheusMonitor)


async def test_streams_label_is_derived_once(monkeypatch: pytest.MonkeyPatch) -> None:
    derived = []
    monkeypatch.setattr(PrometheusMonitor, "_stream_label", lambda _self, stream: derived.append(stream) or "x")
    monitor = CachingMonitor(FaustMetrics.create(CollectorRegistry(), "faust"))
    stream: Any = FakeStream()
    for offset in range(3):
        monitor.on_stream_event_in(TP("requests", 0), offset, stream, None)
    assert derived == [stream]
