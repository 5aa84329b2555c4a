"""What the guard promises about the answers of a run, judged by the topics."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable

import msgspec

from app.settings import Settings
from app.wire.codec import decode
from app.wire.event import NO_PLAN, PLAN, EventType, Plan, TokenEvent
from app.wire.turn import Turn
from tests.faults.records import Fetched, Key, read_topic

BANNED = re.compile(r" w[0-9]*13\b")
"""Words of the paced engine that no reader may get."""


async def wrong_answers(settings: Settings) -> list[Key]:
    return list(wrong_moderation(await read_topic(settings, "tokens"), await read_topic(settings, "turns")))


def wrong_moderation(tokens: Iterable[Fetched], turns: Iterable[Fetched]) -> dict[Key, str]:
    """Blocked text, tokens behind a blocked sentence, and categories that were forgotten. Also a worker that has lost
    its partition writes no blocked text; what else it writes, readers ignore.
    """
    wrong: dict[Key, str] = {}
    plans: dict[Key, Plan] = {}
    epochs: defaultdict[int, int] = defaultdict(lambda: -1)
    for record in tokens:
        event = decode(TokenEvent, record.value, record.headers)
        if event.type is EventType.FENCE:
            epochs[record.partition] = record.offset
            continue
        key = (event.user_id or "", event.request_id or "")
        if BANNED.search((event.reasoning or "") + (event.text or "")):
            wrong[key] = f"blocked text {event.text!r} is on tokens"
        if (event.epoch or 0) < epochs[record.partition]:
            continue
        before = plans.get(key, NO_PLAN)
        if event.type is EventType.TOKEN and before.filtered is not None:
            wrong[key] = f"a token follows the decision {before.filtered}"
        if event.notice is not None and event.notice.code == PLAN:
            plans[key] = plan = msgspec.convert(event.notice.details, Plan)
            if not {*before.categories} <= {*plan.categories}:
                wrong[key] = f"{before.categories} has become {plan.categories}"
    for record in turns:
        turn = decode(Turn, record.value, record.headers)
        key = (turn.user_id, turn.request_id)
        found = plans.get(key, NO_PLAN).categories
        if {*found} != {*(turn.guard or ())}:
            wrong[key] = f"its plan has {found} and its turn {turn.guard}"
    return wrong
