"""A plain reply while it grows."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from types import SimpleNamespace
from typing import Any

import pytest

from app.gateway.callers.identity import Identity
from app.gateway.edge.bodies import Bodies
from app.gateway.edge.errors import ApiError
from app.gateway.openai.exchange import Exchange
from app.wire.event import EventType, Logprob, TokenEvent

TOP = tuple(Logprob(number, "word", -1.0) for number in range(20))


class Answers:
    def __init__(self, events: int, *, top: bool) -> None:
        self.events_left = events
        self.closed = False
        logprobs = (Logprob(1, "word", -1.0, TOP),) if top else None
        self._event = TokenEvent(type=EventType.TOKEN, text="word", tokens=(1,), logprobs=logprobs)

    async def events(self) -> AsyncGenerator[tuple[int, list[TokenEvent]], None]:
        try:
            while self.events_left:
                self.events_left -= 1
                yield 0, [self._event]
        finally:
            self.closed = True


async def read(answers: Answers, replies: Bodies) -> None:
    gateway: Any = SimpleNamespace(replies=replies)
    caller: Any = SimpleNamespace(holder="mallory")
    exchange = Exchange(gateway, SimpleNamespace(), caller, Identity("mallory"))  # type: ignore[arg-type]
    await exchange._read(answers, SimpleNamespace(add=lambda *_: None))  # type: ignore[arg-type]


async def test_a_reply_that_grows_beyond_the_share_of_its_key_ends_its_answers() -> None:
    answers, replies = Answers(100_000, top=True), Bodies(1 << 20, "replies")
    with pytest.raises(ApiError, match="replies of this caller") as refusal:
        await read(answers, replies)
    assert refusal.value.status == 429
    assert answers.closed
    assert answers.events_left > 99_000
    assert not replies.held


async def test_a_long_answer_counts_as_little_as_it_is() -> None:
    answers, replies = Answers(10_000, top=False), Bodies(1, "replies")
    await read(answers, replies)
    assert answers.closed
