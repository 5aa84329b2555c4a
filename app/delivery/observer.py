"""The events of delivery that metrics, logs and traces are made from. Most tests need none of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from app.delivery.commits.commit import Commit
from app.delivery.inflight import InFlightRequest
from app.delivery.record import Record
from app.delivery.resume.answer_log import AnswerLog
from app.wire.event import TokenEvent
from app.wire.turn import Turn
from models.batching import Flush
from tables.records import Table


class Observer(Protocol):
    """Called on the event loop. No method may block or raise."""

    def admitted(self, partition: int, inflight: InFlightRequest) -> None:
        """A request was accepted and is queued."""

    def answered(self, partition: int, inflight: InFlightRequest, answer: AnswerLog, end: TokenEvent) -> None:
        """A request is committed."""

    def refused(self, record: Record, event: TokenEvent) -> None:
        """The record is not a valid request; the event reports the error to its sender."""

    def batch_left(self, partition: int, flush: Flush) -> None: ...

    def committed(self, partition: int, commits: Sequence[Commit], seconds: float) -> None:
        """A transaction with these commits has ended."""

    def flow(self, partition: int, topic: str, *, paused: bool) -> None:
        """The consumption of a topic was paused or resumed."""

    def swept(self, partition: int, held: Mapping[Table, int], expired: Mapping[Table, int]) -> None:
        """How many rows a sweep has kept and deleted."""

    def indexed(self, record: Record, turn: Turn, taken_ns: int) -> None:
        """A record of `turns`, received at that Unix time, is in Milvus."""


class Unobserved:
    def admitted(self, partition: int, inflight: InFlightRequest) -> None: ...

    def answered(self, partition: int, inflight: InFlightRequest, answer: AnswerLog, end: TokenEvent) -> None: ...

    def refused(self, record: Record, event: TokenEvent) -> None: ...

    def batch_left(self, partition: int, flush: Flush) -> None: ...

    def committed(self, partition: int, commits: Sequence[Commit], seconds: float) -> None: ...

    def flow(self, partition: int, topic: str, *, paused: bool) -> None: ...

    def swept(self, partition: int, held: Mapping[Table, int], expired: Mapping[Table, int]) -> None: ...

    def indexed(self, record: Record, turn: Turn, taken_ns: int) -> None: ...


UNOBSERVED = Unobserved()
