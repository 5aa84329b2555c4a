"""Answers of all kinds that are under way when something is killed, and what their readers get: `KILLS` times."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from app.reader import Answer
from app.wire.codec import decode
from app.wire.event import TokenEvent
from models.interface.generation import FinishReason
from tests.integration.worker.client import Client

EACH = 8
"""Answers of a kind that are under way at a kill."""
ROUNDS = -(-int(os.environ.get("KILLS") or 1) // EACH)
"""`make engines KILLS=30` interrupts so many answers of each kind, or nearly: some end before the kill."""
PATIENCE_S = 600.0
QUESTION = "Hi, I am Nina and my order number is 48213."
LIST = {"type": "array", "items": {"type": "integer", "maximum": 99999}, "minItems": 120, "maxItems": 120}
LONG_PROMPT = " ".join((QUESTION, "How long does delivery take?", "Can I return a lamp?") * 12)

SAME = "the same tokens"
PARTIAL = "`partial`"
TOLD = "other words, and the notice"

Fields = Mapping[str, Any]
KINDS: dict[str, Fields] = {
    "greedy": {"temperature": 0, "max_tokens": 600, "ignore_eos": True},
    "sampled": {"temperature": 2, "seed": 5, "max_tokens": 600, "ignore_eos": True},
    "JSON": {
        "temperature": 2,
        "seed": 6,
        "max_tokens": 800,
        "response_format": {"type": "json_schema", "json_schema": {"name": "numbers", "schema": LIST}},
    },
    "regex": {
        "temperature": 2,
        "seed": 7,
        "max_tokens": 800,
        "response_format": {"type": "regex", "regex": "([a-z]{3,9} ){150}"},
    },
    "long prompt": {"prompt": LONG_PROMPT, "temperature": 0, "max_tokens": 600, "ignore_eos": True},
}
TOOLS: Fields = {
    "temperature": 2,
    "seed": 8,
    "max_tokens": 800,
    "tool_choice": "required",
    "tools": [
        {
            "type": "function",
            "function": {
                "name": "count",
                "parameters": {"type": "object", "properties": {"numbers": LIST}, "required": ["numbers"]},
            },
        }
    ],
}


def asked(fields: Fields) -> dict[str, Any]:
    return {"prompt": QUESTION, **fields}


async def whole_answers(client: Client, kinds: Mapping[str, Fields]) -> dict[str, Answer]:
    """What each kind is if nothing is killed."""
    found = {}
    for kind, fields in kinds.items():
        user = client.user()
        found[kind] = await client.answer(user, await client.ask(user, **asked(fields)), PATIENCE_S)
        assert found[kind].end.error is None, (kind, found[kind].end.error)
    return found


@dataclass(frozen=True)
class UnderWay:
    kind: str
    user: str
    request: str
    part: Answer
    """What its reader has just before the kill."""

    def is_interrupted(self, answer: Answer, outcome: str, killed: str) -> bool:
        """Whether the kill was in the middle of it. Where only its server died, it can be whole without a trace."""
        assert answer.end is not None
        if outcome != SAME:
            return True
        if killed == "server":
            return self.part.end is None
        return any(event.epoch != self.part.epoch for event in (*answer.segments, answer.end))


async def begin(client: Client, kinds: Mapping[str, Fields], tokens: int) -> list[UnderWay]:
    """`EACH` answers of every kind, each with so many tokens."""

    async def one(kind: str) -> UnderWay:
        user = client.user()
        request = await client.ask(user, **asked(kinds[kind]))
        part = await client.begun(user, request, tokens)
        return UnderWay(kind, user, request, replace(part, segments=list(part.segments)))  # the reader's goes on

    return list(await asyncio.gather(*(one(kind) for kind in kinds for _ in range(EACH))))


@dataclass
class Tally:
    """How interrupted answers ended, by their kind. A gap, a repetition or a silent change is an `AssertionError`."""

    whole: Mapping[str, Answer]
    outcomes: dict[str, Counter[str]] = field(default_factory=dict)

    async def add(self, client: Client, under_way: Sequence[UnderWay], killed: str = "worker") -> None:
        answers = [await client.answer(one.user, one.request, PATIENCE_S) for one in under_way]
        told = await _told(client, {one.request for one in under_way})
        for one, answer in zip(under_way, answers, strict=True):
            outcome = self._outcome(one, answer, is_told=one.request in told)
            if one.is_interrupted(answer, outcome, killed):
                self.outcomes.setdefault(one.kind, Counter())[outcome] += 1

    def _outcome(self, one: UnderWay, answer: Answer, *, is_told: bool) -> str:
        whole, end = self.whole[one.kind], answer.end
        where = f"{one.kind}, request {one.request}"
        assert end is not None, where
        assert end.error is None, (where, end.error)
        assert answer.missing == (), f"{where}: a gap"
        assert answer.tokens[: len(one.part.tokens)] == one.part.tokens, f"{where}: what readers had has changed"
        if end.finish_reason is FinishReason.PARTIAL:
            assert whole.text.startswith(answer.text), f"{where}: a silent change before its end"
            return PARTIAL
        if (answer.tokens, answer.text, end.tool_calls) == (whole.tokens, whole.text, _renamed(whole, answer)):
            assert end.finish_reason == whole.end.finish_reason, where  # type: ignore[union-attr]
            return SAME
        assert is_told, f"{where}: a silent change: {_difference(whole, answer)}"
        assert answer.text.startswith(one.part.text), where
        return TOLD

    def table(self) -> str:
        return "\n".join(f"| {kind} | {_counts(found)} |" for kind, found in self.outcomes.items())


def _renamed(whole: Answer, answer: Answer) -> Any:
    """The calls of `whole` with the ids of those of `answer`: an id is a name, and each answer has its own."""
    assert whole.end is not None
    assert answer.end is not None
    own = answer.end.tool_calls or ()
    if whole.end.tool_calls is None or len(own) != len(whole.end.tool_calls):
        return whole.end.tool_calls
    same = all(
        (one.name, one.arguments) == (other.name, other.arguments)
        for one, other in zip(own, whole.end.tool_calls, strict=True)
    )
    return answer.end.tool_calls if same else whole.end.tool_calls


def _difference(whole: Answer, answer: Answer) -> str:
    pairs = zip(whole.tokens, answer.tokens, strict=False)
    at = next((number for number, (one, other) in enumerate(pairs) if one != other), None)
    ends = [(event.epoch, event.index, len(event.tokens or ()), event.text) for event in answer.segments]
    tail = f"{whole.text[-20:]!r} and {answer.text[-20:]!r}"
    return f"from token {at} on, of {len(whole.tokens)} and {len(answer.tokens)}; texts end in {tail}; events {ends}"


async def _told(client: Client, requests: set[str]) -> set[str]:
    """Those whose readers were told that other words follow."""
    events = [decode(TokenEvent, record.value, record.headers) for record in await client.records("tokens")]
    return {
        event.request_id
        for event in events
        if event.notice is not None
        and event.request_id in requests
        and event.notice.code == "resumed"
        and (event.notice.details or {}).get("redraws")
    }


def _counts(found: Counter[str]) -> str:
    return ", ".join(f"{count} {outcome}" for outcome, count in found.most_common())
