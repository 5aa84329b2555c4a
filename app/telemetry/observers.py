"""Several observers behind one interface. What one of them raises is logged, and stops neither others nor delivery."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence

from app.delivery.commits.commit import Commit
from app.delivery.escalation import described
from app.delivery.inflight import InFlightRequest
from app.delivery.observer import Observer
from app.delivery.record import Record
from app.delivery.resume.answer_log import AnswerLog
from app.wire.event import TokenEvent
from app.wire.turn import Turn
from models.batching import Flush
from tables.records import Table

log = logging.getLogger(__name__)


class Observers:
    def __init__(self, *observers: Observer) -> None:
        self._all = observers

    def _each(self, notify: Callable[[Observer], None]) -> None:
        for one in self._all:
            try:
                notify(one)
            except Exception as error:  # noqa: BLE001 - whatever it is, what is observed goes on
                log.warning("%s has failed: %s", type(one).__name__, described(error))

    def admitted(self, partition: int, inflight: InFlightRequest) -> None:
        self._each(lambda one: one.admitted(partition, inflight))

    def answered(self, partition: int, inflight: InFlightRequest, answer: AnswerLog, end: TokenEvent) -> None:
        self._each(lambda one: one.answered(partition, inflight, answer, end))

    def refused(self, record: Record, event: TokenEvent) -> None:
        self._each(lambda one: one.refused(record, event))

    def batch_left(self, partition: int, flush: Flush) -> None:
        self._each(lambda one: one.batch_left(partition, flush))

    def committed(self, partition: int, commits: Sequence[Commit], seconds: float) -> None:
        self._each(lambda one: one.committed(partition, commits, seconds))

    def flow(self, partition: int, topic: str, *, paused: bool) -> None:
        self._each(lambda one: one.flow(partition, topic, paused=paused))

    def swept(self, partition: int, held: Mapping[Table, int], expired: Mapping[Table, int]) -> None:
        self._each(lambda one: one.swept(partition, held, expired))

    def indexed(self, record: Record, turn: Turn, taken_ns: int) -> None:
        self._each(lambda one: one.indexed(record, turn, taken_ns))
