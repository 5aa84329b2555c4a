"""What the guard has promised about the answers of a run."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from app.wire import decode_token_event, decode_turn
from app.wire.event import NO_PLAN, PLAN, EventType, PlanDetails
from tests.simulation.broker import Entry
from tests.simulation.judges import BANNED


def wrong_moderation(tokens: Iterable[Entry], turns: Iterable[Entry]) -> list[str]:
    """Blocked text, tokens behind a blocked sentence, and categories that were forgotten."""
    wrong: list[str] = []
    plans: dict[tuple[str, str], PlanDetails] = {}
    for entry in tokens:
        event = decode_token_event(entry.value, entry.headers)
        key = (event.user_id or "", event.request_id or "")
        before = plans.get(key, NO_PLAN)
        if event.type is EventType.TOKEN and BANNED.search(event.text or ""):
            wrong.append(f"{key}: blocked text {event.text!r} is on tokens")
        if event.type is EventType.TOKEN and before.filtered is not None:
            wrong.append(f"{key}: a token follows the decision {before.filtered}")
        if event.notice is not None and event.notice.code == PLAN:
            plans[key] = plan = msgspec.convert(event.notice.details, PlanDetails)
            if not {*before.categories} <= {*plan.categories}:
                wrong.append(f"{key}: {before.categories} has become {plan.categories}")
    for entry in turns:
        turn = decode_turn(entry.value, entry.headers)
        found = plans.get((turn.user_id, turn.request_id), NO_PLAN).categories
        if {*found} != {*(turn.guard or ())}:
            wrong.append(f"{turn.request_id}: its plan has {found} and its turn {turn.guard}")
    return wrong
