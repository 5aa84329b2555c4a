"""What a reader made of a log, in the plain form that `vectors.json` and `replay.mjs` share."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
from parley_client import ReaderRule, Update


def replay(records: Iterable[tuple[int, int, Any]]) -> dict[str, Any]:
    rule: ReaderRule[Any] = ReaderRule()
    updates = [_update(rule.read(*record)) for record in records]
    return {
        "updates": updates,
        "answers": {
            f"{answer.user_id}/{answer.request_id}": {
                "text": answer.text,
                **({"reasoning": answer.reasoning} if answer.reasoning else {}),
                "tokens": list(answer.tokens),
                "end": None if answer.end is None else answer.end.finish_reason or answer.end.type,
                "missing": [list(hole) for hole in answer.missing],
                **({"waiting": waits} if (waits := [_wait_of(one) for one in answer.waiting]) else {}),
                **({"superseded": _details(answer.superseded)} if answer.superseded else {}),
                **({"steered": _details(answer.steered)} if answer.steered else {}),
            }
            for answer in rule.answers.values()
        },
        "dropped": {
            "late": rule.dropped.late,
            "repeated": rule.dropped.repeated,
            "unusable": rule.dropped.unusable,
        },
    }


def _update(update: Update[Any] | None) -> list[Any] | None:
    """[request, type, cut, gap, text to append]"""
    if update is None:
        return None
    return [update.answer.request_id, update.event.type, update.cut, update.gap, update.text]


def _wait_of(event: Any) -> str:
    wait_id: str = _details(event)["wait_id"]
    return wait_id


def _details(event: Any) -> dict[str, Any]:
    notice = event.notice if isinstance(event.notice, dict) else msgspec.to_builtins(event.notice)
    details: dict[str, Any] = notice["details"]
    return details
