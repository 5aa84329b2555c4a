"""What delivery tells whoever measures it: metrics, logs and traces. Most tests need none of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from app.delivery.answer_log import AnswerLog
from app.delivery.claim import Claim
from app.delivery.finish import Finish
from app.delivery.record import Record
from app.wire.event import TokenEvent
from app.wire.turn import Turn
from models.batching import Flush
from tables.records import Table


class Observer(Protocol):
    """Called on the event loop; nothing here may wait or raise."""

    def admitted(self, partition: int, claim: Claim) -> None:
        """A request was taken and waits for its turn."""

    def answered(self, partition: int, claim: Claim, answer: AnswerLog, end: TokenEvent) -> None:
        """A request is finished and committed."""

    def refused(self, record: Record, event: TokenEvent) -> None:
        """The record is no request that can be answered, and its sender was told so by the event."""

    def batch_left(self, partition: int, flush: Flush) -> None: ...

    def committed(self, partition: int, finishes: Sequence[Finish], seconds: float) -> None:
        """A transaction of these finishes."""

    def flow(self, partition: int, topic: str, *, paused: bool) -> None:
        """Records of the topic are left in Kafka from now on, or no longer."""

    def swept(self, partition: int, held: Mapping[Table, int], expired: Mapping[Table, int]) -> None:
        """The rows that a sweep has left, and those that it has deleted."""

    def indexed(self, record: Record, turn: Turn, taken_ns: int) -> None:
        """A record of `turns`, taken at that Unix time, is in Milvus."""


class Unobserved:
    def admitted(self, partition: int, claim: Claim) -> None: ...

    def answered(self, partition: int, claim: Claim, answer: AnswerLog, end: TokenEvent) -> None: ...

    def refused(self, record: Record, event: TokenEvent) -> None: ...

    def batch_left(self, partition: int, flush: Flush) -> None: ...

    def committed(self, partition: int, finishes: Sequence[Finish], seconds: float) -> None: ...

    def flow(self, partition: int, topic: str, *, paused: bool) -> None: ...

    def swept(self, partition: int, held: Mapping[Table, int], expired: Mapping[Table, int]) -> None: ...

    def indexed(self, record: Record, turn: Turn, taken_ns: int) -> None: ...


UNOBSERVED = Unobserved()
