"""What delivery tells whoever measures it. The metrics are one; most tests need none."""

from __future__ import annotations

from typing import Protocol

from app.delivery.answer_log import AnswerLog
from app.delivery.claim import Claim
from app.wire.event import TokenEvent
from models.batching import Flush


class Observer(Protocol):
    def answered(self, claim: Claim, answer: AnswerLog, end: TokenEvent) -> None:
        """A request is finished and committed."""

    def refused(self, topic: str) -> None:
        """A record of the topic became a dead letter."""

    def batch_left(self, partition: int, flush: Flush) -> None: ...

    def committed(self, finishes: int, seconds: float) -> None:
        """A transaction of so many finishes."""


class Unobserved:
    def answered(self, claim: Claim, answer: AnswerLog, end: TokenEvent) -> None: ...

    def refused(self, topic: str) -> None: ...

    def batch_left(self, partition: int, flush: Flush) -> None: ...

    def committed(self, finishes: int, seconds: float) -> None: ...


UNOBSERVED = Unobserved()
