"""What comes in the few milliseconds in which a transaction of an answer that sleeps is under way."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable

import pytest
from aiokafka import TopicPartition

from models.interface.generation import FinishReason
from tables.asleep import Sleep
from tables.records import Table
from tests.simulation.clients import SimTransactionalProducer
from tests.simulation.process import Process
from tests.simulation.test_sleeping import ASKED, Waits, _is_head, _queued


class Races(Waits):
    """The result of the answer's call comes as soon as something is there."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(monkeypatch, after_s=None)
        self.results = 0

    def answer_when(self, is_there: Callable[[Process], bool], late_s: float = 0.0) -> None:
        process = self.simulation.alive[0]

        def watch() -> None:
            if not process.partitions or process.partitions[0]._ownership is None or not is_there(process):
                self.after(0.0002, watch)
                return
            self.results += 1
            self.after(late_s, self._send_result)

        self.after(1.0, watch)

    def written_behind_a_deletion(self) -> list[bytes]:
        """Rows of the answer that were there again after they had gone."""
        found = []
        for table in (Table.CALLS, Table.ASLEEP):
            gone: set[bytes] = set()
            for entry in self.simulation.broker.log(TopicPartition(f"parley-{table.value}-changelog", 0)).entries:
                if entry.visible and entry.value is None:
                    gone.add(entry.key or b"")
                elif entry.visible and entry.key in gone:
                    found.append(entry.key or b"")
        return found

    def _send_result(self) -> None:
        call = json.loads(self.records("tool-calls")[0].value or b"")
        result = {name: call[name] for name in ("tool_call_id", "request_id", "user_id")} | {"content": "there"}
        self.simulation.broker.append(TopicPartition("tool-results", 0), b"u", json.dumps(result).encode())


def _puts_its_sleep_behind_another(process: Process) -> bool:
    queue = process.partitions[0].context.queue
    waits = any(_is_head(row, Sleep.ASLEEP) for one in queue.waiting for row in one.commit.changes)
    return waits and bool(queue.in_hand)


def _puts_its_end(process: Process) -> bool:
    return _queued(process, lambda row: row.table is Table.ENDED and row.key == b'["u","r"]')


async def _told_late(producer: SimTransactionalProducer) -> None:
    await _COMMIT(producer)
    await asyncio.sleep(0.05)


_COMMIT = SimTransactionalProducer.commit_transaction


def test_a_result_wakes_what_has_not_heard_yet_that_it_sleeps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sleep and wake are one transaction, whose waking record comes before the worker learns that it is committed."""
    monkeypatch.setattr(SimTransactionalProducer, "commit_transaction", _told_late)
    course = Races(monkeypatch)
    course.send(1.0, request_id="r", **{**ASKED, "max_tokens": 1})
    for number in range(100):
        course.send(1.0 + number / 50, user=f"v{number}", request_id=f"v{number}", prompt="p", max_tokens=1)
    course.answer_when(_puts_its_sleep_behind_another)
    course.run()
    assert course.results == 1
    assert (course.events("r")[-1].timestamp or 0) / 1000 - course.simulation.began < 10.0


@pytest.mark.parametrize("late_ms", range(4))
@pytest.mark.parametrize("stop_at", [1.4, 8.0], ids=["while it is open", "while it sleeps"])
def test_a_result_that_comes_with_the_end_is_late(
    late_ms: int, stop_at: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    course = Races(monkeypatch)
    course.send(1.0, request_id="r", **ASKED)
    course.send(stop_at, "controls", type="cancel", request_id="r")
    course.answer_when(_puts_its_end, late_ms / 1000)
    course.run()
    assert course.results == 1
    assert course.turns()["r"].finish_reason is FinishReason.CANCELLED
    assert course.written_behind_a_deletion() == []
