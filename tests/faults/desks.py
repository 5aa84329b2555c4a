"""People who decide about calls that wait for an approval, and the verdict on it.

Several decide about one call, at other desks and about calls of nobody too, with arguments that are none, early, late,
and beside a cancel or an erasure. Each writes a name of its own, so a decision can be told from all others.
"""

from __future__ import annotations

import json
import random
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from app.features.tool_rounds import CANCELLED
from app.features.waits.approvals import NOT_APPROVED, NOT_ASKED
from app.policy.tools import ApproveRules
from app.wire.audit import AuditAction, AuditRecord
from app.wire.codec import decode
from app.wire.tool_records import ToolCallRecord
from app.wire.waits import WaitRecord

if TYPE_CHECKING:
    from tests.faults.records import Fetched, Key

DESK = "desk"
MADE = {"approved", "edited"}
_CLOCKS_MS = 500


@dataclass(frozen=True, slots=True)
class PlannedControl:
    """A record for `controls`, to be sent after a while; a wrong one may become a dead letter."""

    after_s: float
    value: dict[str, Any]
    is_wrong: bool = False


class Deciders:
    """What people do about calls of which `waits` tells."""

    def __init__(self, chance: random.Random, *, erases: bool = True) -> None:
        self._chance, self._erases = chance, erases
        self._seen: set[str] = set()
        self._count = 0

    def planned(self, record: WaitRecord | None) -> Iterator[PlannedControl]:
        for wait in () if record is None else record.waits:
            if record is not None and wait.kind == "approval" and wait.wait_id not in self._seen:
                self._seen.add(wait.wait_id)
                yield from self._of_wait(record, wait.wait_id)

    def _of_wait(self, record: WaitRecord, wait_id: str) -> Iterator[PlannedControl]:
        """What becomes of one wait: nothing in one of ten cases."""
        chance, user = self._chance, record.user_id
        of = {"type": "decide", "user_id": user, "request_id": record.request_id}
        if chance.random() < 0.1:
            return
        at = chance.choice((0.0, 0.3, 2.0, 7.0)) * chance.random()
        for _ in range(chance.choice((1, 2, 3))):
            decision = chance.choice(("approved", "approved", "edited", "rejected"))
            yield PlannedControl(at, {**of, "wait_id": wait_id, **self._said(decision)})
            at += chance.choice((0.0, 0.0, 0.01, 3.0)) * chance.random()
        if chance.random() < 0.3:
            early = chance.random()
            others, nobody = self._said("approved", "others"), self._said("approved")
            yield PlannedControl(early, {**of, "wait_id": wait_id, **others}, is_wrong=True)
            yield PlannedControl(early, {**of, "wait_id": "call_of_nobody", **nobody}, is_wrong=True)
            bad = {**self._said("edited"), "arguments": "[1]"}
            yield PlannedControl(early, {**of, "wait_id": wait_id, **bad}, is_wrong=True)
        if chance.random() < 0.2:
            stop = {"type": "cancel", "user_id": user, "request_id": record.request_id}
            yield PlannedControl(chance.choice((0.0, at, at + 0.01)), stop)
        if self._erases and chance.random() < 0.05:
            yield PlannedControl(chance.choice((0.0, at, at + 0.01)), {"type": "erase", "user_id": user})

    def _said(self, decision: str, desk: str = DESK) -> dict[str, Any]:
        self._count += 1
        said: dict[str, Any] = {"decision": decision, "by": f"{desk}/p{self._count}"}
        if decision == "edited":
            said["arguments"] = json.dumps({"word": f"edited {self._count}"})
        if decision == "rejected":
            said |= {"reason": "over the limit"} if self._count % 2 else {}
        return said


@dataclass(frozen=True, slots=True)
class Judged:
    """An approval, as the audit has it: its end, and by whom."""

    outcome: str
    by: str
    asked_at: int
    ended_at: int = 0


def approvals_of(audit: Iterable[Fetched]) -> tuple[dict[Key, dict[str, Judged]], list[str]]:
    """By request and call, and what is wrong with them."""
    found: defaultdict[Key, dict[str, Judged]] = defaultdict(dict)
    wrong = []
    for entry in audit:
        record = decode(AuditRecord, entry.value, entry.headers)
        if record.action is not AuditAction.APPROVAL:
            continue
        key, call = (record.user_id, record.request_id or ""), record.tool_call_id or ""
        before = found[key].get(call)
        if (before is None) != (record.outcome == "asked") or (before is not None and before.outcome != "asked"):
            wrong.append(f"audit: {key} {call} is {record.outcome} after {None if before is None else before.outcome}")
        asked_at = record.at if before is None else before.asked_at
        found[key][call] = Judged(record.outcome, record.by or "", asked_at, record.at)
    return found, wrong


def decisions_in(controls: Iterable[Fetched]) -> dict[str, list[tuple[int, dict[str, Any]]]]:
    """The decisions about each call that could count, in the order of the log."""
    found: defaultdict[str, list[tuple[int, dict[str, Any]]]] = defaultdict(list)
    for entry in controls:
        with suppress(ValueError, KeyError, TypeError, AttributeError):  # what is no decision is a dead letter
            said = json.loads(entry.value or b"")
            if said["type"] == "decide" and said["by"].startswith(f"{DESK}/") and said.get("arguments") != "[1]":
                found[said["wait_id"]].append((entry.timestamp, said))
    return found


def wrong_approvals(
    audit: Iterable[Fetched],
    controls: Iterable[Fetched],
    calls: Iterable[Fetched],
    ended: Mapping[Key, str],
    rules: ApproveRules,
) -> Iterator[str]:
    """The first decision in time counts, and calls are made as approved: exactly those, with these arguments."""
    judged, wrong = approvals_of(audit)
    yield from wrong
    said = decisions_in(controls)
    made = {call.tool_call_id: call for call in (decode(ToolCallRecord, one.value, one.headers) for one in calls)}
    known = {call for one in judged.values() for call in one}
    yield from (f"{call} was made, and nobody was asked" for call in made.keys() - known)
    for key, ones in judged.items():
        for call, one in ones.items():
            where = f"{key} {call}"
            until = one.asked_at + round(rules.within_s * 1000)
            first = next((decision for at, decision in said[call] if at < until), None)
            record = made.get(call)
            must = one.outcome in MADE or (one.outcome == "expired" and rules.otherwise == "approved")
            if must != (record is not None):
                yield f"{where} is {one.outcome} and was {'not ' if record is None else ''}made"
            if one.outcome in {*MADE, "rejected"}:
                if first is None or (first["by"], first["decision"]) != (one.by, one.outcome):
                    yield f"{where} is {one.outcome} by {one.by}, and the first decision in time is {first}"
                elif record is not None and record.arguments != first.get("arguments", record.arguments):
                    yield f"{where} was made with {record.arguments}, and not as decided: {first}"
                elif record is not None and one.outcome == "approved" and "edited" in record.arguments:
                    yield f"{where} was made with {record.arguments}, which nobody has approved"
            elif one.outcome == "expired" and (first is not None or one.ended_at < until - _CLOCKS_MS):
                yield f"{where} expired {one.ended_at - until} ms behind its time, and the decision in time is {first}"
            elif one.outcome == "asked" and key in ended:
                yield f"{where} is asked, and its answer has ended as {ended[key]}"


def results_of(audit: Iterable[Fetched], controls: Iterable[Fetched]) -> dict[Key, dict[str, tuple[str, ...]]]:
    """What the model may read as the results of calls that were asked for, and not made as it has written them."""
    said = decisions_in(controls)
    found: defaultdict[Key, dict[str, tuple[str, ...]]] = defaultdict(dict)
    for key, ones in approvals_of(audit)[0].items():
        for call, one in ones.items():
            if one.outcome == "approved":
                continue
            first = said[call][0][1] if call in said else {}
            reason = f": {first['reason']}" if first.get("reason") else ""
            texts = {
                "rejected": (f"error: rejected by {one.by}{reason}",),
                "expired": (NOT_APPROVED,),
                "cancelled": (CANCELLED, NOT_ASKED),
                "asked": (CANCELLED,),
            }
            found[key][call] = texts.get(one.outcome, ())
    return found
