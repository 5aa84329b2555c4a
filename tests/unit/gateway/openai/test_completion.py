"""Several streams as one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

import pytest

from app.gateway.openai.completion import merged


class Stream:
    def __init__(self, *pauses: float | Exception) -> None:
        self.pauses = pauses
        self.closed = False

    async def items(self) -> AsyncGenerator[float, None]:
        try:
            for pause in self.pauses:
                if isinstance(pause, Exception):
                    raise pause
                await asyncio.sleep(pause)
                yield pause
        finally:
            self.closed = True


async def test_each_is_taken_whole_and_in_its_order() -> None:
    streams = [Stream(0.0, 0.02, 0.0), Stream(), Stream(0.01, 0.01)]
    got = [one async for one in merged([stream.items() for stream in streams])]
    for number, stream in enumerate(streams):
        assert [item for at, item in got if at == number] == list(stream.pauses)


async def test_a_slow_one_does_not_hold_up_the_others() -> None:
    got = []
    async with aclosing(merged([Stream(60.0).items(), Stream(0.0, 0.0).items()])) as items:
        async for one in items:
            got.append(one)
            if len(got) == 2:
                break
    assert got == [(1, 0.0), (1, 0.0)]


async def test_a_failure_of_one_closes_all() -> None:
    streams = [Stream(60.0), Stream(0.0, ValueError("broken"))]
    with pytest.raises(ValueError, match="broken"):
        async for _ in merged([stream.items() for stream in streams]):
            pass
    assert streams[0].closed
    assert streams[1].closed


async def test_who_leaves_early_leaves_nothing_behind() -> None:
    streams = [Stream(0.0, 60.0), Stream(60.0)]
    async with aclosing(merged([stream.items() for stream in streams])) as items:
        await anext(items)
    assert [stream.closed for stream in streams] == [True, True]
    assert len(asyncio.all_tasks()) == 1
