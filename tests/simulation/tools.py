"""The programs that run tools (tests/faults/tool_programs.py) in virtual time."""

from __future__ import annotations

import random
from functools import partial

from aiokafka import TopicPartition

from app.features.programs.history import is_step_name
from app.settings import Settings
from app.wire.codec import decode
from app.wire.tool_records import ToolCallRecord
from tests.faults.tool_programs import Planned, planned
from tests.simulation.broker import Broker


class SimToolPrograms:
    """`wrong` are the places of results that become dead letters if a worker reads them."""

    def __init__(self, seed: int, broker: Broker, settings: Settings, late_s: tuple[float, ...] = (0.0,)) -> None:
        self.silent: set[tuple[str, str]] = set()
        """Requests whose calls get no result."""
        self._late_s = late_s
        self.wrong: set[tuple[str, int, int]] = set()
        self._random = random.Random(f"tools {seed}")
        self._broker = broker
        self._most = settings.max_prompt_bytes
        self._positions: dict[int, int] = {}
        for number in range(settings.partitions):
            broker.log(TopicPartition("tool-calls", number)).readers.append(partial(self._poke, number))

    def _poke(self, number: int) -> None:
        self._broker.world.after(0.001 + 0.02 * self._random.random(), partial(self._look, number))

    def _look(self, number: int) -> None:
        log = self._broker.log(TopicPartition("tool-calls", number))
        entries, self._positions[number] = log.read(self._positions.get(number, 0), 100)
        for entry in entries:
            call = decode(ToolCallRecord, entry.value, entry.headers)
            if (call.user_id, call.request_id) in self.silent or is_step_name(call.name):
                continue
            late_s = self._random.choice(self._late_s) if len(self._late_s) > 1 else self._late_s[0]
            for one in planned(call, self._random, self._most):
                self._broker.world.after(late_s + one.after_s, partial(self._send, number, call.user_id, one))

    def _send(self, number: int, user: str, one: Planned) -> None:
        offset = self._broker.append(TopicPartition("tool-results", number), user.encode(), one.value)
        if one.is_wrong:
            self.wrong.add(("tool-results", number, offset))
