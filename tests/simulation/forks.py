"""The verdict on conversations that begin as copies of others (`from`)."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from app.reader import Answer, ReaderRule
from app.wire.codec import decode
from app.wire.event import TokenEvent
from app.wire.turn import Turn
from tables.records import Conversation, decode_row
from tests.faults.records import Key
from tests.simulation.broker import Entry

_MOST_TURNS = 10


def answers_of(events: Iterable[Entry]) -> Mapping[Key, Answer]:
    """What readers have."""
    rule = ReaderRule(remember=1 << 60)
    for entry in events:
        rule.read(entry.partition, entry.offset, decode(TokenEvent, entry.value, entry.headers))
    return rule.answers


def wrong_forks(
    requests: Iterable[Entry],
    controls: Iterable[Entry],
    events: Iterable[Entry],
    turns: Mapping[Key, Turn],
    rows: Iterable[tuple[str, bytes]],
    torn: Collection[Key],
) -> Iterator[str]:
    """`turns` on the topic; `rows` of conversations, with their users."""
    asked, answers = asked_in(requests), answers_of(events)
    erased = [*_erased(controls)]
    count = Counter((key[0], _conversation(one)) for key, (_, one) in asked.items())
    for key, (offset, one) in asked.items():
        fork, answer = one.get("from"), answers.get(key)
        if fork is None or answer is None or answer.end is None or key in torn:
            continue
        begin = fork.get("tokens") or []
        if any(one != other for one, other in zip(answer.tokens, begin, strict=False)):
            yield f"{key} does not begin with the tokens of {fork['request_id']}"
        source, error = (key[0], fork["request_id"]), answer.end.error
        is_there = source in asked and asked[source][0] < offset and source in turns and bool(turns[source].answer)
        is_there = is_there and _conversation(asked[source][1]) == fork["conversation_id"]
        is_touched = source in torn or any(user == key[0] for user, _, _ in erased)
        is_long = count[key[0], fork["conversation_id"]] >= _MOST_TURNS
        if error is not None and "has no turn of" in error.message and is_there and not (is_touched or is_long):
            yield f"{key} was refused, and {source} was there: {error.message}"
    for user, value in rows:
        row = decode_row(value, Conversation)
        if row.origin is not None:
            for whose, conversation, at in erased:
                is_of_it = conversation is None or conversation in row.origin.sources
                if whose == user and is_of_it and row.origin.at <= at:
                    yield f"a copy of {conversation}, which {row.origin.by} has made, outlives its erasure"
        yield from (f"{turn.request_id} is remembered as open" for turn in row.turns if turn.open)


def _conversation(request: dict[str, Any]) -> str:
    return str(request.get("conversation_id", "default"))


def asked_in(requests: Iterable[Entry]) -> dict[Key, tuple[int, dict[str, Any]]]:
    found: dict[Key, tuple[int, dict[str, Any]]] = {}
    for entry in requests:
        with suppress(ValueError, KeyError, TypeError, AttributeError):
            request = json.loads(entry.value or b"")
            found.setdefault((request["user_id"], request["request_id"]), (entry.offset, request))
    return found


def _erased(controls: Iterable[Entry]) -> Iterator[tuple[str, str | None, int]]:
    """Users, conversations and times of erasures as they were asked for, without those that workers forward."""
    for entry in controls:
        with suppress(ValueError, KeyError, TypeError, AttributeError):
            control = json.loads(entry.value or b"")
            if control["type"].startswith("erase") and not entry.headers:
                yield control["user_id"], control.get("conversation_id"), entry.timestamp
