"""Wait for something that a process does, but only while the process lives."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, NoReturn, TypeVar

from app.local.process import BackgroundProcess

_LOOK_S = 0.5
T = TypeVar("T")


async def while_alive(process: BackgroundProcess, work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`. Raises `LocalError` with the last line of the process's log once it has exited."""
    working = asyncio.ensure_future(work)
    watching = asyncio.ensure_future(_watch(process))
    try:
        await asyncio.wait([working, watching], return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else watching.result()
    finally:
        for task in (working, watching):
            task.cancel()
        await asyncio.gather(working, watching, return_exceptions=True)


async def _watch(process: BackgroundProcess) -> NoReturn:
    while True:
        process.require_alive()
        await asyncio.sleep(_LOOK_S)
