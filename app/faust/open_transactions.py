"""Partitions that wait for a transaction which some writer has left open.

A read_committed consumer gets nothing from the last stable offset on, the first record of the oldest open transaction,
however many records stand behind it. Kafka reports that offset and the high watermark with each fetch; without this the
worker would be silent and appear idle.
"""

from __future__ import annotations

import logging
from typing import Any

log = logging.getLogger(__name__)

PATIENCE_S = 10.0
"""A writer's transaction takes well under a second."""
_EVERY_S = 1.0


class OpenTransactions:
    """Logs one WARNING about each offset at which a partition waits for long."""

    def __init__(self) -> None:
        self._checked_at = 0.0
        self._waiting: dict[Any, tuple[int, float]] = {}
        self._warned: dict[Any, int] = {}

    def fetched(self, consumer: Any, now: float) -> None:
        """Call after each fetch, at `now` in seconds; most calls do nothing."""
        if now - self._checked_at < _EVERY_S:
            return
        self._checked_at = now
        before, self._waiting = self._waiting, {}
        for partition, offset in _held_back(consumer):
            at, since = before.get(partition, (-1, now))
            self._waiting[partition] = (offset, since if at == offset else now)
            if at == offset and now - since >= PATIENCE_S and self._warned.get(partition) != offset:
                self._warned[partition] = offset
                log.warning(
                    "%s[%s] offset %s: an open transaction has held back the records from here on for %.0f s. Its "
                    "writer has to commit or abort it; the broker aborts it after the writer's transaction.timeout.ms",
                    partition.topic,
                    partition.partition,
                    offset,
                    now - since,
                )


def _held_back(consumer: Any) -> list[tuple[Any, int]]:
    """The partitions of which all that may be read was delivered, but not all that is there, and that offset.

    What Kafka has reported of a paused partition, or of one whose records wait to be delivered, may be old.
    """
    subscription = consumer._subscription.subscription  # noqa: SLF001
    assignment = None if subscription is None else subscription.assignment
    if assignment is None:
        return []
    states = [(partition, assignment.state_value(partition)) for partition in assignment.tps]
    return [
        (partition, state.lso)
        for partition, state in states
        if state.has_valid_position and not state.paused
        if state.lso is not None and 0 <= state.lso <= state.position and state.lso < state.highwater
    ]
