"""Clients that stop while their task is cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from aiokafka.client import AIOKafkaClient

from app.kafka.clients import stop


def client_that_is_connected() -> AIOKafkaClient:
    """As `bootstrap` leaves it, with the task that renews its metadata."""
    client = AIOKafkaClient()
    client._sync_task = asyncio.create_task(client._md_synchronizer())
    return client


async def has_dropped_a_cancellation(stopping: Coroutine[Any, Any, None]) -> bool:
    task = asyncio.create_task(stopping)
    await asyncio.sleep(0)
    assert task.cancel()
    await asyncio.wait([task])
    return not task.cancelled()


async def test_a_cancellation_that_comes_during_a_stop_is_raised_behind_it() -> None:
    """A replay went on after Ctrl-C when it was just closing the consumer of a partition."""
    client = client_that_is_connected()
    assert not await has_dropped_a_cancellation(stop(client))
    assert client._sync_task is None, "it has stopped"


async def test_aiokafka_still_drops_it() -> None:
    """If this fails, `stop` is not needed any more."""
    assert await has_dropped_a_cancellation(client_that_is_connected().close())


async def test_a_task_that_was_cancelled_before_stops_its_client_and_raises_its_own_error() -> None:
    async def work() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await stop(client_that_is_connected())
            raise KeyError("what has failed") from None

    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    task.cancel()
    (result,) = await asyncio.gather(task, return_exceptions=True)
    assert isinstance(result, KeyError)
