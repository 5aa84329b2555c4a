"""The deciders of tests/faults/desks.py at two gateways in virtual time."""

from __future__ import annotations

import json
import random
from functools import partial

from aiokafka import TopicPartition

from app.wire.codec import decode
from app.wire.waits import WaitRecord
from tests.faults.desks import Deciders, PlannedControl
from tests.simulation.broker import Broker


class SimDesks:
    """`wrong` are the places of decisions that may become dead letters."""

    def __init__(self, seed: int, broker: Broker, partitions: int) -> None:
        self.wrong: set[tuple[str, int, int]] = set()
        self._random, self._broker = random.Random(f"desks {seed}"), broker
        self._deciders = Deciders(self._random)
        self._positions: dict[int, int] = {}
        for number in range(partitions):
            broker.log(TopicPartition("waits", number)).readers.append(partial(self._poke, number))

    def _poke(self, number: int) -> None:
        self._broker.world.after(0.001 + 0.02 * self._random.random(), partial(self._read, number))

    def _read(self, number: int) -> None:
        log = self._broker.log(TopicPartition("waits", number))
        entries, self._positions[number] = log.read(self._positions.get(number, 0), 100)
        for entry in entries:
            for one in self._deciders.planned(None if entry.value is None else decode(WaitRecord, entry.value)):
                self._broker.world.after(one.after_s, partial(self._send, number, one))

    def _send(self, number: int, one: PlannedControl) -> None:
        key, value = one.value["user_id"].encode(), json.dumps(one.value).encode()
        place = self._broker.append(TopicPartition("controls", number), key, value)
        if one.is_wrong:
            self.wrong.add(("controls", number, place))
