"""Programs that run tools in the simulation: they answer calls soon, late, several times, or not at all."""

from __future__ import annotations

import json
import random
from functools import partial

from aiokafka import TopicPartition

from app.settings import Settings
from app.wire import ToolCallRecord, decode_tool_call
from tests.simulation.broker import Broker

_LATE_S = 3.0


class ToolPrograms:
    """`wrong` are the places of results that must become dead letters if a worker reads them."""

    def __init__(self, seed: int, broker: Broker, settings: Settings) -> None:
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
            self._run(number, decode_tool_call(entry.value, entry.headers))

    def _run(self, number: int, call: ToolCallRecord) -> None:
        soon = self._random.choice((0.0, 0.01, 0.3, 1.0)) * self._random.random()
        chance = self._random.random()
        if chance < 0.1:
            return
        content = f"result of {call.tool_call_id}"
        if chance < 0.2:
            soon += _LATE_S
        if chance > 0.95:
            content = "x" * (self._most + 1)
            self._answer(number, call, content, soon, is_wrong=True)
            return
        self._answer(number, call, content, soon)
        if chance > 0.7:
            self._answer(number, call, f"another {content}", soon + self._random.choice((0.0, 0.1, 4.0)))
        if chance > 0.85:
            self._append(number, call.user_id, b"{not json", soon)
            self._answer(number, call, content, soon, is_wrong=True, tool_call_id="call_of_nobody")

    def _answer(
        self, number: int, call: ToolCallRecord, content: str, after: float, *, is_wrong: bool = False, **other: str
    ) -> None:
        names = ("tool_call_id", "request_id", "user_id")
        result = {**{name: getattr(call, name) for name in names}, "content": content, **other}
        self._append(number, call.user_id, json.dumps(result).encode(), after, is_wrong=is_wrong)

    def _append(self, number: int, user: str, value: bytes, after: float, *, is_wrong: bool = True) -> None:
        def append() -> None:
            offset = self._broker.append(TopicPartition("tool-results", number), user.encode(), value)
            if is_wrong:
                self.wrong.add(("tool-results", number, offset))

        self._broker.world.after(after, append)
