"""Tells observers of the steps of an answer: rounds of its model, calls, approvals, searches.

The steps are read from the rounds before and after a commit, so each is told by the owner that has committed it,
whether the answer is open or asleep. Without traces nothing of this runs.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import NamedTuple

from app.answering.run import Run
from app.delivery.accepted import RequestKey
from app.delivery.inflight import InFlight
from app.delivery.partition import Partition
from app.delivery.record import HeaderList
from app.features.answer_trace import AnswerTrace
from app.settings import Settings
from tables.tool_calls import ApprovalState, ToolRounds


class StepKind(enum.Enum):
    ROUND = enum.auto()
    TOOL = enum.auto()
    APPROVAL = enum.auto()
    RETRIEVAL = enum.auto()


class AnswerStep(NamedTuple):
    """What was done for an answer, between two Unix milliseconds. `at` is the time of its request, `headers` those of
    its record, `cause` those of the record that has ended the step. `inflight` is None while the answer sleeps.
    """

    kind: StepKind
    key: RequestKey
    at: int
    headers: HeaderList
    began: int
    ended: int
    name: str = ""
    call_id: str = ""
    error: str | None = None
    details: Mapping[str, str | int] = {}
    cause: HeaderList = ()
    inflight: InFlight | None = None


_REFUSED = {ApprovalState.REJECTED: "rejected", ApprovalState.EXPIRED: "expired"}


def is_told(settings: Settings) -> bool:
    return settings.traces != "off"


def record_headers(partition: Partition, key: RequestKey) -> HeaderList | None:
    """Of the answer's request; None if neither the request nor its rows are here."""
    ownership = partition.ownership
    if (inflight := ownership.inflight_requests.get(key)) is not None:
        return inflight.accepted.record.headers
    sleeper = ownership.sleepers.get(key)
    return None if sleeper is None else sleeper.answer.headers


def trace_of(partition: Partition, key: RequestKey, at: int) -> AnswerTrace | None:
    """The trace of an answer that may sleep; None if traces are off."""
    if not is_told(partition.context.settings) or (headers := record_headers(partition, key)) is None:
        return None
    return AnswerTrace.of(headers, key, at)


def tell_calls(
    partition: Partition, key: RequestKey, before: ToolRounds, after: ToolRounds, ended: int, cause: HeaderList = ()
) -> None:
    """Tell of the calls that have a result now, and of the approvals that are decided."""
    settings, number = partition.context.settings, partition.number
    if not is_told(settings) or not after.rounds or (headers := record_headers(partition, key)) is None:
        return
    last = after.rounds[-1]
    was_asked = {call.id for call in before.asked_calls}
    errors = {one.call_id: one.content.startswith("error:") for one in last.outcomes}
    agents = {one.call_id for one in last.agents}
    missing = {call.id for call in before.missing}
    for call in last.calls:
        approval, began = last.approval(call.id), last.asked_at
        step = AnswerStep(StepKind.TOOL, key, after.at, headers, began, ended, call.name, call.id, cause=cause)
        if approval is not None and call.id in was_asked and not approval.is_asked:
            details = {"parley.approval.state": approval.state.value, "parley.approval.by": approval.by}
            step = step._replace(kind=StepKind.APPROVAL, details=details, error=_REFUSED.get(approval.state))
            partition.context.observer.stepped(number, step)
        elif call.id in missing and call.id in errors and call.id not in agents:
            if approval is not None:
                began = approval.until - approval.time_ms
            error = "tool_error" if errors[call.id] else None
            partition.context.observer.stepped(number, step._replace(began=began, error=error))


def tell_round(run: Run, name: str, ended: int) -> None:
    """Tell that the model has ended a round in calls."""
    if is_told(run.settings):
        _tell(run, StepKind.ROUND, name, 0, ended, {})


def tell_retrieval(run: Run, name: str, began: int, ended: int, found: int) -> None:
    if is_told(run.settings):
        _tell(run, StepKind.RETRIEVAL, name, began, ended, {"parley.retrieval.turns": found})


def _tell(run: Run, kind: StepKind, name: str, began: int, ended: int, details: dict[str, str | int]) -> None:
    accepted, context = run.accepted, run.partition.context
    headers, inflight = accepted.record.headers, run.inflight
    step = AnswerStep(kind, run.key, accepted.at, headers, began, ended, name, details=details, inflight=inflight)
    context.observer.stepped(context.number, step)
