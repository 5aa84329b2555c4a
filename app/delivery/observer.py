"""The events of delivery that metrics, logs and traces are made from. Most tests need none of them."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any

from app.delivery.commits.commit import Commit
from app.delivery.inflight import InFlight, Outcome
from app.delivery.record import Record
from app.wire.event import TokenEvent
from app.wire.turn import Turn
from models.interface.batcher import Flush
from models.interface.unexpected import type_and_line
from tables.records import Table

log = logging.getLogger(__name__)


class Observer:
    """Called on the event loop. No method may block. A subclass has those for which it does something."""

    def admitted(self, partition: int, inflight: InFlight) -> None:
        """A request was accepted and is queued."""

    def answered(self, partition: int, outcome: Outcome) -> None:
        """A request is committed."""

    def slept(self, partition: int, inflight: InFlight) -> None:
        """A request waits, and is open no longer: it is admitted again when it wakes."""

    def stepped(self, partition: int, step: Any) -> None:
        """A round, a call, an approval or a search of an answer has ended: an `AnswerStep` of app/features."""

    def refused(self, record: Record, event: TokenEvent) -> None:
        """The record is not a valid request; the event reports the error to its sender."""

    def batch_left(self, partition: int, flush: Flush) -> None:
        """A batch of jobs was submitted to an engine."""

    def committed(self, partition: int, commits: Sequence[Commit], seconds: float) -> None:
        """A transaction with these commits has ended."""

    def flow(self, partition: int, topic: str, *, paused: bool) -> None:
        """The consumption of a topic was paused or resumed."""

    def swept(self, partition: int, held: Mapping[Table, int], expired: Mapping[Table, int]) -> None:
        """How many rows a sweep has kept and deleted."""

    def indexed(self, record: Record, turn: Turn, received_ns: int) -> None:
        """A record of `turns`, received at that Unix time, is in Milvus."""


EVENTS = tuple(name for name in vars(Observer) if not name.startswith("_"))
UNOBSERVED = Observer()


class Observers(Observer):
    """Several observers, and those in `others` at the time. What one of them raises is logged, and stops neither others
    nor delivery.
    """

    def __init__(self, *observers: Observer, others: Sequence[Observer] = ()) -> None:
        for event in EVENTS:
            setattr(self, event, partial(_notify, (observers, others), event))


def _notify(observers: Sequence[Sequence[Observer]], event: str, *what: Any, **how: Any) -> None:
    for one in chain.from_iterable(observers):
        try:
            getattr(one, event)(*what, **how)
        except Exception as error:  # noqa: BLE001 - whatever it is, what is observed goes on
            log.warning("%s has failed: %s", type(one).__name__, type_and_line(error))
