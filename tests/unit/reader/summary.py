"""What a reader made of a log, in the plain form that `vectors.json` and `replay.mjs` share."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

import parley_client

from app.reader import ReaderRule, Update
from app.wire.event import TokenEvent


def replay(records: Iterable[tuple[int, int, TokenEvent]]) -> dict[str, Any]:
    rule = ReaderRule()
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
            }
            for answer in rule.answers.values()
        },
        "dropped": {
            "late": rule.dropped.late,
            "repeated": rule.dropped.repeated,
            "unusable": rule.dropped.unusable,
        },
    }


def _update(update: Update | None) -> list[Any] | None:
    """[request, type, cut, gap, text to append]"""
    if update is None:
        return None
    return [update.answer.request_id, update.event.type, update.cut, update.gap, update.text]


def replay_by_client(records: Iterable[list[Any]]) -> dict[str, Any]:
    """The same by the reader of `parley-client`, which reads events as they are in JSON."""
    rule = parley_client.ReaderRule()
    updates = [rule.read(*record) for record in records]
    answers = {}
    for answer in rule.answers.values():
        reasoning = {"reasoning": answer.reasoning} if answer.reasoning else {}
        answers[f"{answer.user_id}/{answer.request_id}"] = {
            "text": answer.text,
            **reasoning,
            "tokens": answer.tokens,
            "end": None if answer.end is None else answer.end.get("finish_reason") or answer.end["type"],
            "missing": [list(hole) for hole in answer.missing],
        }
    told = [one and [one.answer.request_id, one.event["type"], one.cut, one.gap, one.text] for one in updates]
    return {"updates": told, "answers": answers, "dropped": dataclasses.asdict(rule.dropped)}
