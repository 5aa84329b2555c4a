"""What happens to agents that answers have asked, in virtual time: they and who has asked are cancelled and erased,
their records are repeated, and others pretend to answer for them.
"""

from __future__ import annotations

import json
import random
from functools import partial
from typing import Any

from aiokafka import TopicPartition

from app.features.agents.asking import ASKED_BY
from app.wire.codec import decode
from app.wire.waits import WaitRecord
from tests.simulation.broker import Broker


class SimAskers:
    """`wrong` are the places of records that may become dead letters, `repeats` those of repeated requests."""

    def __init__(self, seed: int, broker: Broker, partitions: int) -> None:
        self.wrong: set[tuple[str, int, int]] = set()
        self.repeats: set[tuple[int, int]] = set()
        self._random, self._broker = random.Random(f"askers {seed}"), broker
        self._positions: dict[tuple[str, int], int] = {}
        self._seen: set[str] = set()
        for number in range(partitions):
            for topic, look in (("waits", self._look), ("requests", self._look_at_requests)):
                broker.log(TopicPartition(topic, number)).readers.append(partial(self._poke, number, look))

    def _poke(self, number: int, look: Any) -> None:
        self._broker.world.after(0.001 + 0.02 * self._random.random(), partial(look, number))

    def _read(self, topic: str, number: int) -> list[Any]:
        log, at = self._broker.log(TopicPartition(topic, number)), (topic, number)
        entries, self._positions[at] = log.read(self._positions.get(at, 0), 100)
        return list(entries)

    def _look(self, number: int) -> None:
        for entry in self._read("waits", number):
            record = None if entry.value is None else decode(WaitRecord, entry.value)
            for wait in () if record is None else record.waits:
                if record is not None and wait.kind == "answer" and wait.wait_id not in self._seen:
                    self._seen.add(wait.wait_id)
                    self._plan(number, record, wait.wait_id)

    def _look_at_requests(self, number: int) -> None:
        """Repeat some of the requests of agents."""
        for entry in self._read("requests", number):
            headers = dict(entry.headers)
            if ASKED_BY in headers and "woken" not in headers and self._random.random() < 0.15:
                late = self._random.choice((0.0, 0.3, 3.0))
                self._broker.world.after(late, partial(self._repeat, number, entry.key, entry.value, entry.headers))

    def _repeat(self, number: int, key: bytes, value: bytes, headers: Any) -> None:
        offset = self._broker.append(TopicPartition("requests", number), key, value, headers=headers)
        self.repeats.add((number, offset))

    def _plan(self, number: int, record: WaitRecord, wait_id: str) -> None:
        chance, user = self._random, record.user_id
        late = chance.choice((0.0, 0.3, 2.0, 7.0)) * chance.random()
        what = chance.random()
        if what < 0.12:
            self._send(late, number, user, {"type": "cancel", "user_id": user, "request_id": wait_id})
        elif what < 0.24:
            self._send(late, number, user, {"type": "cancel", "user_id": user, "request_id": record.request_id})
        elif what < 0.28:
            self._send(late, number, user, {"type": "erase", "user_id": user})
        elif what < 0.34:
            erase = {"type": "erase_conversation", "user_id": user, "conversation_id": record.conversation_id}
            self._send(late, number, user, erase)
        if chance.random() < 0.2:
            of = {"user_id": user, "request_id": record.request_id, "tool_call_id": wait_id}
            self._send(late, number, user, {**of, "content": "a result of nobody"}, topic="tool-results")
            decide = {"type": "decide", "decision": "approved", "by": "desk/eve", "wait_id": wait_id}
            self._send(late, number, user, {**decide, "user_id": user, "request_id": record.request_id}, wrong=True)

    def _send(
        self,
        after_s: float,
        number: int,
        user: str,
        record: dict[str, Any],
        *,
        topic: str = "controls",
        wrong: bool = False,
    ) -> None:
        def send() -> None:
            value = json.dumps(record).encode()
            offset = self._broker.append(TopicPartition(topic, number), user.encode(), value)
            if wrong or topic == "tool-results":
                self.wrong.add((topic, number, offset))

        self._broker.world.after(after_s, send)
