from __future__ import annotations

import pytest

from app.wire.turn import Timing, Turn
from models.interface.generation import FinishReason, Usage


def turn(text: str, *, asked: int | None, ended: int) -> Turn:
    return Turn(
        request_id="r",
        user_id="ann",
        conversation_id="c",
        prompt=text,
        answer=text,
        finish_reason=FinishReason.CANCELLED,
        usage=Usage(3, 4),
        model_version="demo",
        created_at=ended,
        timing=None if asked is None else Timing(requested_at=asked),
    )


@pytest.mark.parametrize(
    ("asked", "ended", "kept"), [(5, 8, False), (6, 8, False), (7, 8, True), (9, 5, False), (None, 6, False)]
)
def test_what_was_asked_before_an_erasure_does_not_outlive_it_even_if_it_ended_later(
    asked: int | None, ended: int, kept: bool
) -> None:
    assert turn("words", asked=asked, ended=ended).outlives(6) is kept


def test_turn_that_an_erasure_has_emptied_is_not_remembered() -> None:
    assert not turn("", asked=7, ended=8).outlives(6)
    assert not turn("", asked=7, ended=8).outlives(0)
    assert turn("words", asked=-1, ended=8).outlives(0)
