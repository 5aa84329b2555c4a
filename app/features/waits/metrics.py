"""The figures of answers that wait: what has become of them, counted once it is committed, and how many sleep now.

Without answers that sleep, the names have no samples.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence

import msgspec
from prometheus_client import CollectorRegistry, Counter
from prometheus_client.core import GaugeMetricFamily, Metric

from app.delivery.commits.commit import Commit
from app.delivery.observer import Observer
from app.delivery.partition import Partition, State
from app.features.tool_rounds import ToolsOverKafka
from app.features.waits.schedule import Count
from app.wire.audit import AuditAction
from app.wire.codec import WOKEN_HEADER
from tables.asleep import Head, Part, Sleep
from tables.records import RowChange, Table, key_parts

_STOPPED = "stopped"


class WaitMetrics(Observer):
    def __init__(self, registry: CollectorRegistry) -> None:
        self._slept = Counter(
            "parley:slept", "Answers that fell asleep, by what they wait for.", ["kind"], registry=registry
        )
        self._woken = Counter(
            "parley:woken",
            "Answers that were woken, by what they waited for; `stopped`: to end, by a cancel or an erasure.",
            ["kind"],
            registry=registry,
        )
        self._approvals = Counter(
            "parley:approvals",
            "Calls that need an approval, `asked` once and decided once.",
            ["outcome"],
            registry=registry,
        )

    def committed(self, partition: int, commits: Sequence[Commit], seconds: float) -> None:  # noqa: ARG002
        for commit in commits:
            for one in commit.audit:
                if one.action is AuditAction.APPROVAL:
                    self._approvals.labels(one.outcome).inc()
            rows = [one for one in commit.changes if one.table is Table.ASLEEP and one.value is not None]
            if rows:
                self._count(commit, rows)

    def _count(self, commit: Commit, rows: Sequence[RowChange]) -> None:
        heads = [msgspec.json.decode(one.value or b"", type=Head) for one in rows if _part_of(one) == Part.WAIT]
        slept = any(_part_of(one) == Part.ANSWER for one in rows)
        wakes = any(name == WOKEN_HEADER for output in commit.outputs for name, _ in output.headers)
        for head in heads:
            if slept and head.state is Sleep.ASLEEP:
                self._slept.labels(head.kind.value).inc()
            elif wakes and head.state is Sleep.AWAKE:
                self._woken.labels(_STOPPED if head.is_stopped else head.kind.value).inc()


def asleep_families(tools: ToolsOverKafka | None, partitions: Sequence[Partition]) -> Iterable[Metric]:
    """Of partitions in which answers sleep, as they were counted last, within a minute."""
    answers = _gauge("asleep", "Answers that sleep.")
    size = _gauge("asleep_bytes", "Bytes of their rows.")
    used = _gauge("asleep_used_ratio", "Part that they use of what the policy allows a partition, 0 to 1.")
    oldest = _gauge("asleep_oldest_seconds", "For how long the oldest of them waits.")
    for number, count in _counts(tools, partitions):
        answers.add_metric([number], count.answers)
        size.add_metric([number], count.size)
        oldest.add_metric([number], 0.0 if count.oldest is None else max(0.0, time.time() - count.oldest / 1000))
        if tools is not None and tools.waits is not None:
            used.add_metric([number], count.used(tools.waits))
    return answers, size, used, oldest


def _counts(tools: ToolsOverKafka | None, partitions: Sequence[Partition]) -> Iterator[tuple[str, Count]]:
    if tools is None:
        return
    for partition in partitions:
        calls = tools.known_calls(partition.ownership) if partition.state is State.OWNED else None
        if calls is not None and calls.schedule.count is not None:
            yield str(partition.number), calls.schedule.count


def _part_of(change: RowChange) -> str:
    return key_parts(change.key)[0]


def _gauge(name: str, documentation: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"parley:{name}", documentation, labels=["partition"])
