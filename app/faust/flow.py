"""Flow control of single topics of a partition, which delivery needs of Faust's consumer."""

from __future__ import annotations

from typing import Protocol

import faust
from faust.types import TP

from app.settings import Settings


class _App(Protocol):
    parley: Settings
    rebalancing: bool
    consumer: faust.types.ConsumerT


class ConsumerFlow:
    """Faust's consumer, as the `Flow` of delivery."""

    def __init__(self, app: _App) -> None:
        self._app = app

    # Not Faust's pause_partitions: that drops records that were fetched and not delivered yet.

    def pause(self, topic: str, partition: int) -> None:
        self._app.consumer.on_buffer_full(self._at(topic, partition))

    def resume(self, topic: str, partition: int) -> None:
        # During a rebalance everything is paused, and resumed at its end.
        if not self._app.rebalancing:
            self._app.consumer.on_buffer_drop(self._at(topic, partition))

    def _at(self, topic: str, partition: int) -> TP:
        return TP(self._app.parley.topic(topic), partition)
