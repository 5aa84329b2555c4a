"""That the storms among calls that wait for an approval can fail: each rule, broken on purpose, is found."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from agents import controls
from app.delivery.commits.commit import Commit
from app.delivery.partition import Partition
from app.delivery.record import Record
from app.features.open_calls import OpenCalls
from app.features.waits import approvals
from app.features.waits.wake import wake_with
from app.wire.control import Decide, Expire
from tables.tool_calls import ToolRounds
from tests.simulation import test_approvals as directed
from tests.simulation.mutant import Mutant, find_broken_promise
from tests.simulation.sleeping import approval_storm

_MADE = approvals._made
_DECIDE = approvals.decide


async def _counts_the_second(partition: Partition, calls: OpenCalls, record: Record, decision: Any) -> None:
    """Whatever was decided before, this counts."""
    key = (decision.user_id, decision.request_id)
    rounds = calls.decided(key)
    approval = None if rounds is None else approvals._approval(rounds, decision.wait_id)
    is_late = isinstance(decision, Decide) and approval is not None and not approval.is_asked
    if rounds is not None and is_late and decision.decision == "approved":
        call = next((one for one in rounds.missing if one.id == decision.wait_id), None)
        if call is not None:
            rounds = rounds.with_approval(msgspec.structs.replace(approval, decided_by=decision.by))
            audit = approvals.audit_of_approval(key, rounds, "approved", decision.by, call, 0)
            output = approvals.call_record(partition.context.settings, key, rounds, call, 0)
            await partition.commit(Commit(record, (calls.decide(key, rounds),), (output,), (audit,)))
            return
    await _DECIDE(partition, calls, record, decision)


async def _makes_the_call_first(partition: Partition, calls: OpenCalls, record: Record, decision: Any) -> None:
    """The call goes out in a transaction of its own, before that of the decision."""
    key = (decision.user_id, decision.request_id)
    decided = approvals._decided(partition, calls, decision, record.timestamp)
    if decided is None:
        await partition.commit(Commit(record))
        return
    await partition.commit(Commit(None, (), decided.outputs), urgent=True)
    change, woken = calls.decide(key, decided.rounds), wake_with(partition, key, decided.rounds)
    heads = [(key, partition.ownership.sleepers.under_way.get(key))]
    await partition.commit(Commit(record, (change, *woken.changes), woken.outputs, decided.audit), urgent=True)
    calls.settle({key: decided.rounds})
    partition.ownership.sleepers.settle(heads)
    calls.wake([key])


def _of_any_desk(partition: Partition, calls: OpenCalls, decision: Any, at: int) -> Any:
    rounds = calls.decided((decision.user_id, decision.request_id))
    approval = None if rounds is None else approvals._approval(rounds, decision.wait_id)
    if isinstance(decision, Expire) or approval is None or decision.by.partition("/")[0] == approval.by:
        return _DECIDED(partition, calls, decision, at)
    by = f"{approval.by}/{decision.by.partition('/')[2]}"
    return _DECIDED(partition, calls, msgspec.structs.replace(decision, by=by), at)


_DECIDED = approvals._decided
_EXPIRED = approvals._expired


def _as_of_its_reading(partition: Partition, calls: OpenCalls, decision: Any, _at: int) -> Any:
    return _DECIDED(partition, calls, decision, partition.ownership.clock.now())


def _makes_what_expires(rounds: ToolRounds, approval: Any, now: int) -> Any:
    return _EXPIRED(rounds, msgspec.structs.replace(approval, is_made_at_last=True), now)


def _edits_nothing(rounds: ToolRounds, approval: Any, now: int, _arguments: str | None = None) -> ToolRounds:
    return _MADE(rounds, approval, now)


MUTANTS = {
    "a second decision counts": Mutant(controls, "decide", _counts_the_second, approval_storm, hint=2),
    "a call goes out before its decision is committed": Mutant(
        controls, "decide", _makes_the_call_first, approval_storm, hint=1
    ),
    "a decision of another desk counts": Mutant(approvals, "_decided", _of_any_desk, approval_storm),
    "edited arguments do not count": Mutant(approvals, "_made", _edits_nothing, approval_storm),
    "what expires is made although the policy says no": Mutant(
        approvals, "_expired", _makes_what_expires, approval_storm
    ),
    "a decision is late that is read late": Mutant(approvals, "_decided", _as_of_its_reading, approval_storm, hint=3),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_broken_promise_is_found(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    find_broken_promise(mutant, MUTANTS[mutant], monkeypatch)


@pytest.mark.parametrize("kind", ["cancel", "erase"])
def test_a_stopped_answer_that_makes_its_calls_is_found(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(approvals, "_is_over", lambda *_: False)
    control = {"type": kind} | ({"request_id": "r"} if kind == "cancel" else {})
    with pytest.raises(AssertionError):
        directed.test_what_ends_an_answer_ends_its_approval(control, monkeypatch)
