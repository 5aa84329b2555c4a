"""Several observers behind one interface."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from app.delivery.commits.commit import Commit
from app.delivery.inflight import InFlightRequest
from app.delivery.observer import Observer
from app.delivery.record import Record
from app.delivery.resume.answer_log import AnswerLog
from app.wire.event import TokenEvent
from app.wire.turn import Turn
from models.batching import Flush
from tables.records import Table


class Observers:
    def __init__(self, *observers: Observer) -> None:
        self._all = observers

    def admitted(self, partition: int, inflight: InFlightRequest) -> None:
        for one in self._all:
            one.admitted(partition, inflight)

    def answered(self, partition: int, inflight: InFlightRequest, answer: AnswerLog, end: TokenEvent) -> None:
        for one in self._all:
            one.answered(partition, inflight, answer, end)

    def refused(self, record: Record, event: TokenEvent) -> None:
        for one in self._all:
            one.refused(record, event)

    def batch_left(self, partition: int, flush: Flush) -> None:
        for one in self._all:
            one.batch_left(partition, flush)

    def committed(self, partition: int, commits: Sequence[Commit], seconds: float) -> None:
        for one in self._all:
            one.committed(partition, commits, seconds)

    def flow(self, partition: int, topic: str, *, paused: bool) -> None:
        for one in self._all:
            one.flow(partition, topic, paused=paused)

    def swept(self, partition: int, held: Mapping[Table, int], expired: Mapping[Table, int]) -> None:
        for one in self._all:
            one.swept(partition, held, expired)

    def indexed(self, record: Record, turn: Turn, taken_ns: int) -> None:
        for one in self._all:
            one.indexed(record, turn, taken_ns)
