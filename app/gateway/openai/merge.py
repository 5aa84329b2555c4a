"""Merge several streams into one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import TypeVar

T = TypeVar("T")


async def merged(streams: Sequence[AsyncGenerator[T, None]]) -> AsyncGenerator[tuple[int, T], None]:
    """The items of all streams with the stream's number, in order of arrival; close it if you leave it early."""
    waiting: dict[asyncio.Task[T | None], int] = {}
    try:
        for number, stream in enumerate(streams):
            waiting[asyncio.create_task(_next(stream))] = number
        while waiting:
            done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                number, item = waiting.pop(task), task.result()
                if item is not None:
                    yield number, item
                    waiting[asyncio.create_task(_next(streams[number]))] = number
    finally:
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        for stream in streams:
            await stream.aclose()


async def _next(stream: AsyncGenerator[T, None]) -> T | None:
    return await anext(stream, None)
