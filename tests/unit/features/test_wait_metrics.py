"""What operators see of answers that sleep."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import msgspec
from prometheus_client import CollectorRegistry

from app.delivery.commits.commit import Commit
from app.delivery.partition import State
from app.delivery.record import Outgoing
from app.features.tool_rounds import ToolsOverKafka
from app.features.waits.metrics import WaitMetrics, asleep_families
from app.features.waits.schedule import Count
from app.policy.file import NO_POLICY, WaitRules
from app.settings import Settings
from app.wire.audit import AuditAction, AuditRecord
from tables.asleep import Head, KeptAnswer, Part, Sleep, Sleeper, WaitKind, row_of

NIGHT = Head(state=Sleep.ASLEEP, conversation_id="c", until=9, at=1, slept_at=1, since=1_000, size=1 << 19)
TIMER = msgspec.structs.replace(NIGHT, kind=WaitKind.TIMER)
KEY = ("nina", "r")


def counted(*commits: Commit) -> dict[str, float]:
    registry = CollectorRegistry()
    WaitMetrics(registry).committed(0, commits, 0.1)
    return {
        f"{sample.name.removeprefix('parley:')} {next(iter(sample.labels.values()))}": sample.value
        for family in registry.collect()
        for sample in family.samples
        if sample.name.endswith("_total")
    }


def asleep(head: Head) -> Commit:
    return Commit(None, Sleeper(head, b"{}", KeptAnswer(1, b"nina")).rows(*KEY))


def woken(head: Head, *, stopped: bool = False, record: bool = True) -> Commit:
    awake = msgspec.structs.replace(head, state=Sleep.AWAKE, is_stopped=stopped)
    outputs = (Outgoing("requests", b"nina", b"{}", (("woken", b"1"),)),) if record else ()
    return Commit(None, (row_of(Part.WAIT, awake, *KEY),), outputs)


def test_each_sleep_and_each_wake_is_counted_once_by_its_kind() -> None:
    told_again = Commit(None, (row_of(Part.WAIT, NIGHT, *KEY),))
    stopped_again = woken(NIGHT, stopped=True, record=False)
    assert counted(asleep(NIGHT), told_again, asleep(TIMER), woken(NIGHT), woken(TIMER), stopped_again) == {
        "slept_total tool": 1,
        "slept_total timer": 1,
        "woken_total tool": 1,
        "woken_total timer": 1,
    }
    assert counted(woken(NIGHT, stopped=True)) == {"woken_total stopped": 1}


def test_approvals_are_counted_and_other_records_of_the_audit_are_not() -> None:
    audit = [
        AuditRecord(action=action, outcome=outcome, user_id="nina", at=1)
        for action, outcome in [
            (AuditAction.APPROVAL, "asked"),
            (AuditAction.APPROVAL, "rejected"),
            (AuditAction.REQUEST, "stop"),
        ]
    ]
    assert counted(Commit(None, (), (), tuple(audit))) == {"approvals_total asked": 1, "approvals_total rejected": 1}


def test_without_answers_that_sleep_there_is_no_sample() -> None:
    assert counted(Commit()) == {}
    tools = ToolsOverKafka(Settings(_env_file=None))
    owned = cast("Any", SimpleNamespace(number=3, state=State.OWNED, ownership=SimpleNamespace()))
    for partitions in ([], [owned]):
        tools._calls = cast("Any", {})
        tools.known_calls = lambda _: None  # type: ignore[method-assign]
        assert [sample for family in asleep_families(tools, partitions) for sample in family.samples] == []


def test_what_sleeps_is_shown_with_the_room_that_it_uses() -> None:
    count = Count()
    for since in (3_000, 1_000):
        count.add(msgspec.structs.replace(NIGHT, since=since))
    rules = WaitRules(per_partition=4, mb_per_partition=100)
    tools = ToolsOverKafka(Settings(_env_file=None), msgspec.structs.replace(NO_POLICY, waits=rules))
    tools.known_calls = lambda _: cast(  # type: ignore[method-assign]
        "Any", SimpleNamespace(schedule=SimpleNamespace(count=count))
    )
    owned = cast("Any", SimpleNamespace(number=3, state=State.OWNED, ownership=None))
    away = cast("Any", SimpleNamespace(number=4, state=State.CLOSED, ownership=None))
    found = {
        family.name.removeprefix("parley:"): family.samples[0].value for family in asleep_families(tools, [owned, away])
    }
    assert (found["asleep"], found["asleep_bytes"], found["asleep_used_ratio"]) == (2, 1 << 20, 0.5)
    assert found["asleep_oldest_seconds"] > 1e9
