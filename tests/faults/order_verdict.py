"""The verdict on requests that do something to earlier ones of their conversation (`while_busy`)."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass

import msgspec

from app.reader import ReaderRule
from app.settings import Settings
from app.wire.codec import decode
from app.wire.error import ErrorCode
from app.wire.event import NO_PLAN, PLAN, SUPERSEDED, WAITING, EventType, Plan, TokenEvent
from app.wire.turn import Turn
from models.interface.generation import FinishReason
from tables.records import Table
from tests.faults.records import Fetched, Key, read_topic, turn_of
from tests.faults.verdict import wakes_timer

_LATE_MS = 8000
_GOES_ON = 10
"""Moments of an answer in one epoch, some seconds behind a request: its owner lives, and has read the request."""
_ENDS = ("interrupt", "rollback")


@dataclass(slots=True)
class _Asked:
    """A request: its rule, when and where its record came, and what became of it. `begun`, `end_at`: the offsets of its
    first token and its end. `is_to_come`: it slept until its time, and no record has told that the time had come.
    """

    rule: str
    conversation: tuple[str, str]
    offset: int
    at: int
    times: dict[int, list[int]]
    not_before: int
    end: TokenEvent | None = None
    ended_at: int | None = None
    end_at: int | None = None
    begun: int | None = None
    plan: Plan = NO_PLAN
    told: int = 0
    is_to_come: bool = False

    def goes_on_after(self, at: int) -> bool:
        """Whether it went on for a second: one that was suspended says what it had at once."""
        late = ({one // 100 for one in times if one > at + _LATE_MS} for times in self.times.values())
        return any(len(moments) > _GOES_ON for moments in late)


async def wrong_words(settings: Settings) -> list[str]:
    """By what is on the topics. What models have read is judged by their words (texts_verdict.py)."""
    requests, tokens, turns = [await read_topic(settings, topic) for topic in ("requests", "tokens", "turns")]
    changes = await read_topic(settings, f"{settings.app_id}-{Table.CONVERSATIONS.value}-changelog")
    rows = {record.key: record.value for record in changes}
    kept = [value for value in rows.values() if value is not None]
    ended = {(turn.user_id, turn.request_id): turn for turn in map(turn_of, turns)}
    return [*wrong_order(requests, tokens, ended, kept, {}, (), ())]


def wrong_order(
    requests: Iterable[Fetched],
    events: Iterable[Fetched],
    turns: Mapping[Key, Turn],
    rows: Iterable[bytes],
    read: Mapping[Key, Collection[str]],
    timed: Collection[Key],
    torn: Collection[Key],
) -> Iterator[str]:
    """`turns` on the topic, `rows` of conversations, and the questions that models have `read` for each answer."""
    asked = _asked(requests, events, timed)
    of_conversation: defaultdict[tuple[str, str], list[tuple[Key, _Asked]]] = defaultdict(list)
    for key, one in asked.items():
        of_conversation[one.conversation].append((key, one))
    for ordered in of_conversation.values():
        begun = sorted((pair for pair in ordered if not pair[1].is_to_come), key=lambda pair: pair[1].offset)
        for place, (key, one) in enumerate(begun):
            if key not in torn:
                earlier = [pair for pair in begun[:place] if pair[0] not in torn]
                yield from _of_earlier(key, one, earlier, knows_all=len(earlier) == place)
        for key, one in ordered:
            if key not in torn:
                yield from _of_its_end(key, one, asked, turns.get(key))
    rolled_back = {key for key, one in asked.items() if one.plan.rolled_back}
    for user, request_id in rolled_back - set(torn):
        by = asked.get((user, asked[user, request_id].plan.superseded or ""))
        mine = asked[user, request_id].conversation
        for key, questions in read.items():
            other = asked.get(key)
            if by is None or other is None or other.conversation != mine or key in torn:
                continue
            if other.offset >= by.offset and request_id in questions and key[1] != request_id:
                yield f"{key} has read {request_id}, which was rolled back"
    for row in rows:
        left = {one["request_id"] for one in json.loads(row).get("turns", ())} & {name for _, name in rolled_back}
        yield from (f"a conversation remembers {name}, which was rolled back" for name in left)


def _of_earlier(key: Key, one: _Asked, earlier: list[tuple[Key, _Asked]], *, knows_all: bool) -> Iterator[str]:
    is_rejected = _is_rejected(one)
    running = [
        name
        for name, other in earlier
        if other.goes_on_after(one.at) and (other.ended_at is None or other.ended_at > one.at)
    ]
    if one.rule == "reject":
        over = knows_all and all(other.ended_at is not None and other.ended_at < one.at for _, other in earlier)
        if is_rejected and over:
            yield f"{key} was rejected, and nothing of its conversation was open"
        if not is_rejected and running and not _is_stopped(one):
            yield f"{key} was not rejected while {running} went on"
    elif is_rejected:
        yield f"{key} was rejected without asking for it"
    if one.rule in _ENDS and running:
        yield f"{running} went on behind {key}"
    if one.rule in _ENDS and one.begun is not None:
        late = [
            name
            for name, other in earlier
            if (other.end_at is None or other.end_at > one.begun)
            and not _is_rejected(other)  # it has no turn to wait for
        ]
        yield from (f"{key} has begun before the end of {name}" for name in late)


def _of_its_end(key: Key, one: _Asked, asked: Mapping[Key, _Asked], turn: Turn | None) -> Iterator[str]:
    plan, end = one.plan, one.end
    if plan.steered is not None:
        yield from _of_steered(key, one, asked)
    if plan.superseded is None:
        if one.told:
            yield f"{key} is told as superseded, and its plan does not say so"
        return
    by = asked.get((key[0], plan.superseded))
    if by is None or by.conversation != one.conversation or by.rule not in _ENDS:
        yield f"{key} was ended by {plan.superseded}, which does not do that"
        return
    if plan.rolled_back and by.rule != "rollback":
        yield f"{key} was rolled back by {plan.superseded}, which does not do that"
    if not one.told:
        yield f"{key} was superseded, and nobody was told"
    ends = {FinishReason.CANCELLED} | ({FinishReason.FILTERED} if plan.filtered is not None else set())
    if end is None or (end.type is EventType.DONE and end.finish_reason not in ends):
        yield f"{key} was superseded and ended as {None if end is None else end.finish_reason}"
    if end is not None and end.type is EventType.DONE and end.usage is None:
        yield f"{key} was superseded and nobody pays for it"
    if plan.rolled_back and turn is not None and (turn.prompt or turn.answer or turn.tool_calls or turn.reasoning):
        yield f"{key} was rolled back, and its turn has texts"


def _of_steered(key: Key, one: _Asked, asked: Mapping[Key, _Asked]) -> Iterator[str]:
    into = asked.get((key[0], one.plan.steered or ""))
    if one.rule != "steer" or into is None or into.conversation != one.conversation or into.offset > one.offset:
        yield f"{key} went into {one.plan.steered}, which it does not do"
    if one.begun is not None:
        yield f"{key} went into {one.plan.steered}, and has an answer of its own"


def _is_rejected(one: _Asked) -> bool:
    return one.end is not None and one.end.error is not None and one.end.error.code == ErrorCode.CONVERSATION_BUSY


def _is_stopped(one: _Asked) -> bool:
    """Whether the request ended for a reason of its own before it was asked what is busy."""
    return one.end is not None and (one.end.error is not None or one.end.finish_reason is FinishReason.CANCELLED)


def _asked(requests: Iterable[Fetched], events: Iterable[Fetched], timed: Collection[Key]) -> dict[Key, _Asked]:
    asked: dict[Key, _Asked] = {}
    for entry in requests:
        with suppress(ValueError, KeyError, TypeError, AttributeError):
            request = json.loads(entry.value or b"")
            key = (request["user_id"], request["request_id"])
            if key in timed and key in asked and wakes_timer(entry, request, asked[key].at):
                del asked[key]
            conversation = (key[0], request.get("conversation_id", "default"))
            rule = request.get("while_busy", "queue")
            new = _Asked(rule, conversation, entry.offset, entry.timestamp, {}, request.get("not_before", 0))
            asked.setdefault(key, new)
    rule = ReaderRule(remember=1 << 60)
    for entry in events:
        event = decode(TokenEvent, entry.value, entry.headers)
        one = asked.get((event.user_id or "", event.request_id or ""))
        if rule.read(entry.partition, entry.offset, event) is None or one is None:
            continue
        if event.type is EventType.TOKEN and not event.copy:
            one.times.setdefault(event.epoch or 0, []).append(entry.timestamp)
            one.begun = entry.offset if one.begun is None else one.begun
        if event.is_end and one.end is None:
            one.end, one.ended_at, one.end_at = event, entry.timestamp, entry.offset
        if event.notice is not None and event.notice.code == PLAN:
            one.plan = msgspec.convert(event.notice.details, Plan)
        if event.notice is not None and event.notice.code == WAITING and one.at < one.not_before:
            one.is_to_come = True
        one.told += event.notice is not None and event.notice.code == SUPERSEDED
    return asked
