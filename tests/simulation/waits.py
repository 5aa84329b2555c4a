"""The verdict on the topic `waits`."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator

from app.wire.codec import decode
from app.wire.event import TokenEvent
from app.wire.waits import WaitRecord
from tests.faults.verdict import Key
from tests.simulation.broker import Entry


def slept_by(entries: Iterable[Entry]) -> dict[Key, dict[str, int]]:
    """The requests of which the topic tells, and since when each has slept for the call of this id, by the broker."""
    found: dict[Key, dict[str, int]] = {}
    for entry in entries:
        user, request_id = json.loads(entry.key or b"")
        calls = found.setdefault((user, request_id), {})
        record = None if entry.value is None else decode(WaitRecord, entry.value)
        for wait in () if record is None else record.waits:
            calls.setdefault(wait.wait_id, entry.timestamp)
    return found


def wrong_waits(entries: Iterable[Entry], events: Iterable[Entry], torn: Collection[Key]) -> Iterator[str]:
    """The newest record of each answer on `waits` says that it has ended, or is a tombstone."""
    newest = {entry.key: entry for entry in entries}
    said = {
        (event.user_id, event.request_id) for event in (decode(TokenEvent, one.value, one.headers) for one in events)
    }
    for raw, entry in newest.items():
        key = tuple(json.loads(raw or b""))
        if key not in said and key not in torn:
            yield f"{key} is on `waits` and has said nothing"
        if entry.value is not None and decode(WaitRecord, entry.value).state != "ended":
            yield f"{key} is over and stands on `waits` as {decode(WaitRecord, entry.value).state}"
