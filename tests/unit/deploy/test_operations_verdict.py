"""Which cut answers an erasure explains."""

from __future__ import annotations

from dataclasses import dataclass

from app.wire.codec import encode
from app.wire.erasure import Erasure
from app.wire.turn import Turn
from models.interface.generation import FinishReason, Usage
from tests.faults.records import Key
from tests.faults.verdict import Verdict
from tests.operations.verdict import pardon_cut


@dataclass(frozen=True)
class Stored:
    value: bytes
    partition: int = 0
    offset: int = 0
    timestamp: int = 0
    key: bytes | None = None
    headers: tuple[tuple[str, bytes], ...] = ()


def turn(key: Key, text: str) -> Stored:
    return Stored(
        encode(
            Turn(
                user_id=key[0],
                request_id=key[1],
                conversation_id="default",
                prompt=text,
                answer=text,
                finish_reason=FinishReason.CANCELLED,
                usage=Usage(1, 1),
                model_version="m",
                created_at=0,
            )
        )[0]
    )


def differing(asked_at: dict[Key, int], texts: dict[Key, str]) -> list[Key]:
    """What still differs, of answers that all differ, when `nina` was erased at 50 and that was done at 60."""
    verdict = Verdict(turn_differs=[*asked_at], asked_at=asked_at)
    erasure = encode(Erasure(user_id="nina", erased_at=50, created_at=60))[0]
    pardon_cut(verdict, [turn(key, text) for key, text in texts.items()], [Stored(erasure)])
    return verdict.turn_differs


def test_only_the_erased_users_running_answers_may_differ() -> None:
    running, later, other = ("nina", "running"), ("nina", "later"), ("omar", "running")
    asked_at = {running: 40, later: 61, other: 40}
    assert differing(asked_at, dict.fromkeys(asked_at, "")) == [later, other]


def test_a_turn_that_keeps_text_of_an_erased_user_differs() -> None:
    running = ("nina", "running")
    assert differing({running: 40}, {running: "half of the answer"}) == [running]
