"""The verdict on `usage`: each turn is counted once, each revision is published once and builds on the one before."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from app.wire.usage import UsageWindow


def wrong_usage(windows: Iterable[UsageWindow], turns: Sequence[object], open_requests: int) -> list[str]:
    """`windows` in the order of each partition's log; `open_requests` are in windows that are not published yet."""
    newest: dict[tuple[object, ...], UsageWindow] = {}
    wrong = []
    for window in windows:
        place = (window.route, window.experiment, window.arm, window.partition)
        key = (window.window_start, window.tenant, window.model, *place)
        before = newest.get(key)
        if window.revision != (before.revision if before else 0) + 1:
            wrong.append(f"usage {key}: revision {window.revision} after {before and before.revision}")
        if before is not None and window.requests <= before.requests:
            wrong.append(f"usage {key}: {window.requests} requests after {before.requests}")
        newest[key] = window
    counted = sum(window.requests for window in newest.values()) + open_requests
    if counted != len(turns):
        wrong.append(f"usage counts {counted} requests of {len(turns)} turns")
    return wrong
