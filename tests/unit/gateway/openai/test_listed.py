"""The list of a user's conversations."""

from __future__ import annotations

from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

from app.gateway.openai.routes.conversations import _listed
from app.wire.turn import Turn
from tests.integration.commands.stored import turn


async def test_a_conversation_has_the_name_of_the_question_that_was_asked_first() -> None:
    """Words that are added to an answer end before it, so their turn is the first one on the topic."""
    ended = [
        turn("nina", "added", "in blue, please", "", 2),
        turn("nina", "first", "paint a house", "done", 1),
        turn("nina", "other", "hello", "hi", 3, conversation_id="second"),
    ]

    async def turns(_user: str) -> AsyncIterator[Turn]:
        for one in ended:
            yield one

    gateway: Any = SimpleNamespace(turns=turns, erasures=SimpleNamespace(at=lambda *_: 0))
    listed = await _listed(gateway, "nina")
    assert {name: (one.title, one.turns) for name, one in listed.items()} == {
        "default": ("paint a house", 2),
        "second": ("hello", 1),
    }
