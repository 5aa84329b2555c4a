"""The one line of aiokafka that is told in other words, and how Faust hands out a record."""

from __future__ import annotations

import asyncio
import logging

import pytest
from aiokafka.consumer.group_coordinator import log
from aiokafka.errors import CoordinatorNotAvailableError, KafkaConnectionError

from app.internals import QuickWait, _FirstStart


def told(error: Exception) -> logging.LogRecord:
    record = log.makeRecord(log.name, logging.ERROR, "", 0, "Group Coordinator Request failed: %s", (error,), None)
    assert _FirstStart().filter(record)
    return record


def test_a_first_start_is_told_as_what_it_is() -> None:
    first = told(CoordinatorNotAvailableError())
    assert (first.levelno, first.levelname) == (logging.WARNING, "WARNING")
    assert "no group coordinator yet" in first.getMessage()


def test_other_errors_are_told_as_they_are() -> None:
    other = told(KafkaConnectionError("gone"))
    assert other.levelno == logging.ERROR
    assert other.getMessage() == "Group Coordinator Request failed: KafkaConnectionError: gone"


async def put(queue: asyncio.Queue[str], item: str) -> str:
    await queue.put(item)
    return item


async def test_what_need_not_wait_is_done_before_anything_else_runs() -> None:
    queue: asyncio.Queue[str] = asyncio.Queue()
    turns: list[str] = []
    asyncio.get_running_loop().call_soon(turns.append, "another turn of the loop")
    first = put(queue, "a")
    found = await QuickWait().wait_first(first, asyncio.Event().wait())
    assert (found.done, found.results, found.stopped) == ([first], ["a"], False)
    assert queue.get_nowait() == "a"
    assert not turns


async def test_what_has_to_wait_goes_on_where_it_was() -> None:
    queue: asyncio.Queue[str] = asyncio.Queue(maxsize=1)
    queue.put_nowait("a")
    asyncio.get_running_loop().call_soon(queue.get_nowait)
    found = await QuickWait().wait_first(put(queue, "b"), asyncio.Event().wait())
    assert found.results == ["b"]
    assert queue.get_nowait() == "b"


async def test_what_waits_is_given_up_when_the_other_comes_first() -> None:
    queue: asyncio.Queue[str] = asyncio.Queue(maxsize=1)
    queue.put_nowait("a")
    other = asyncio.Event()
    asyncio.get_running_loop().call_soon(other.set)
    await QuickWait().wait_first(put(queue, "b"), other.wait())
    await asyncio.sleep(0)
    assert queue.get_nowait() == "a"
    await asyncio.sleep(0)
    assert queue.empty()


async def test_an_error_is_raised_at_once_or_later() -> None:
    async def fail(turns: int) -> None:
        for _ in range(turns):
            await asyncio.sleep(0)
        raise ValueError("broken")

    for turns in (0, 3):
        with pytest.raises(ValueError, match="broken"):
            await QuickWait().wait_first(fail(turns), asyncio.Event().wait())
