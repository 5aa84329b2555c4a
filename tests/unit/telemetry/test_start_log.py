"""The lines of a worker's start."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from app.delivery.partition import State
from app.telemetry import start_log
from app.telemetry.start_log import TakeOvers, told_while_it_lasts


@pytest.fixture(autouse=True)
def _logged(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    with caplog.at_level(logging.INFO, logger=start_log.__name__):
        yield


def partition(number: int, state: State = State.OWNED, answers: int = 0, restored: int = 0) -> Any:
    ownership = SimpleNamespace(epoch=10 + number, to_continue=answers, restored=restored)
    return SimpleNamespace(number=number, state=state, ownership=ownership)


async def test_partitions_that_are_taken_over_together_are_one_line_and_ready_is_told_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    one, two = partition(0, answers=1, restored=1), partition(1, State.TAKING_OVER, answers=1, restored=4)
    told = TakeOvers(lambda: "everything about it")
    told.add(one, [one, two])
    assert caplog.messages == []
    two.state = State.OWNED
    told.add(two, [one, two])
    told.add(one, [one, two])
    assert caplog.messages == [
        "taken over: 0: epoch 10, 1: epoch 11; 2 answers to continue, 5 rows restored",
        "ready: everything about it",
        "taken over: 0: epoch 10; 1 answer to continue, 1 row restored",
    ]


async def test_a_partition_that_takes_long_does_not_hide_the_others(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(start_log, "_TOGETHER_S", 0.0)
    one, stuck = partition(0), partition(1, State.TAKING_OVER)
    told = TakeOvers(lambda: "")
    told.add(one, [one, stuck])
    while not caplog.messages:
        await start_log.asyncio.sleep(0)
    assert caplog.messages == ["taken over: 0: epoch 10; 0 answers to continue, 0 rows restored"]


async def test_a_worker_without_partitions_is_ready(caplog: pytest.LogCaptureFixture) -> None:
    told = TakeOvers(lambda: "0 of 8 partitions")
    told.assigned(())
    assert caplog.messages == [
        "the group gives this worker no partitions: others have them all",
        "ready: 0 of 8 partitions",
    ]


def test_what_takes_long_is_told_again_and_again(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(start_log, "_FIRST_S", 0.001)
    monkeypatch.setattr(start_log, "_AGAIN_S", 0.001)
    with told_while_it_lasts("loading the model demo"):
        while len(caplog.messages) < 2:
            pass
    assert re.fullmatch(r"still loading the model demo, for \d+ s so far", caplog.messages[0])
    assert "start log" not in {thread.name for thread in threading.enumerate()}


def test_what_is_quick_is_not_told(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start_log, "_FIRST_S", 600.0)
    with told_while_it_lasts("loading the model demo"):
        pass
    assert caplog.messages == []
