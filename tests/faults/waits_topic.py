"""The verdict on the topic `waits`."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

from app.wire.codec import WOKEN_HEADER, decode
from app.wire.error import ErrorCode
from app.wire.event import WAITING, TokenEvent
from app.wire.waits import WaitRecord
from models.interface.generation import FinishReason
from tables.asleep import Sleep

if TYPE_CHECKING:
    from tests.faults.records import Fetched, Key
AWAKE = "awake"


def slept_by(entries: Iterable[Fetched]) -> dict[Key, dict[str, int]]:
    """The requests of which the topic tells, and since when each has slept for the call of this id, by the broker;
    under `AWAKE`, when it woke first.
    """
    found: dict[Key, dict[str, int]] = {}
    for entry in entries:
        user, request_id = json.loads(entry.key or b"")
        record = None if entry.value is None else decode(WaitRecord, entry.value)
        for wait in () if record is None else record.waits:
            if wait.kind != "timer":
                found.setdefault((user, request_id), {}).setdefault(wait.wait_id, entry.timestamp)
        if record is not None and record.state == AWAKE and (user, request_id) in found:
            found[user, request_id].setdefault(AWAKE, entry.timestamp)
    return found


def timed_in(entries: Iterable[Fetched]) -> frozenset[Key]:
    """The requests of which the topic tells that they slept until their time."""
    told = (decode(WaitRecord, entry.value) for entry in entries if entry.value is not None)
    return frozenset((one.user_id, one.request_id) for one in told if any(wait.kind == "timer" for wait in one.waits))


def begun_early(requests: Iterable[Fetched], events: Iterable[Fetched]) -> Iterator[str]:
    """Requests of which something was decided or said before their time."""
    times: dict[Key, int] = {}
    for entry in requests:
        with suppress(ValueError, KeyError, TypeError):
            request = json.loads(entry.value or b"")
            times.setdefault((request["user_id"], request["request_id"]), request["not_before"])
    for entry in events:
        event = decode(TokenEvent, entry.value, entry.headers)
        not_before = times.get((event.user_id or "", event.request_id or ""), 0)
        is_invalid = event.error is not None and event.error.code is ErrorCode.INVALID_REQUEST
        is_stopped = is_invalid or (event.finish_reason is FinishReason.CANCELLED and not event.index)
        details = {} if event.notice is None else event.notice.details or {}
        ends = not event.index and bool({"by", "superseded"} & details.keys())
        waits = event.notice is not None and event.notice.code == WAITING
        if entry.timestamp < not_before and not (waits or ends or is_stopped):
            yield f"{event.request_id} of {event.user_id} was begun {not_before - entry.timestamp} ms before its time"


def wrong_waits(
    entries: Collection[Fetched], requests: Iterable[Fetched], events: Iterable[Fetched], torn: Collection[Key]
) -> Iterator[str]:
    """Each answer that has slept has ended, and was woken as often as it fell asleep."""
    told = (decode(TokenEvent, one.value, one.headers) for one in events)
    said = {(event.user_id, event.request_id) for event in told}
    slept, newest = Counter[tuple[str, str]](), dict[tuple[str, str], str]()
    for entry in entries:
        user, request_id = json.loads(entry.key or b"")
        before = newest.get((user, request_id))
        newest[user, request_id] = state = "ended" if entry.value is None else decode(WaitRecord, entry.value).state
        slept[user, request_id] += state == Sleep.ASLEEP != before  # a decision is told while it sleeps
    woken = Counter(_key_of(one) for one in requests if any(name == WOKEN_HEADER for name, _ in one.headers))
    for key, state in newest.items():
        if key not in said and key not in torn:
            yield f"{key} is on `waits` and has said nothing"
        if state != "ended":
            yield f"{key} is over and stands on `waits` as {state}"
        if slept[key] != woken[key]:
            yield f"{key} has slept {slept[key]} times, and was woken {woken[key]} times"


def _key_of(request: Fetched) -> Key:
    asked = json.loads(request.value or b"")
    return asked["user_id"], asked["request_id"]
