"""What a stream waits for before its head leaves: until then a failure can still become the reply's status."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

from starlette.requests import Request

from app.gateway.edge.while_connected import while_connected


async def for_a_status(
    http: Request, first: asyncio.Task[Any], events: AsyncGenerator[Any, None], within_s: float | None
) -> None:
    """Wait for the first events, at most so long. Raises what they raise, or `ApiError` if the caller leaves; the
    events are closed then.
    """
    try:
        await while_connected(http, _first_of(first, within_s))
    except BaseException:
        await ended(first)
        await events.aclose()
        raise


async def _first_of(first: asyncio.Task[Any], within_s: float | None) -> None:
    done, _ = await asyncio.wait({first}, timeout=within_s)
    if done:
        first.result()


async def ended(first: asyncio.Task[Any]) -> None:
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
