"""When a call leaves an answer that waits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from app.gateway.asking.answer_stream import events_to_done
from app.gateway.edge.errors import ApiError
from app.wire.event import EventType, Notice, TokenEvent
from models.interface.generation import FinishReason
from tests.virtual_time import in_virtual_time

WAITS = [TokenEvent(type=EventType.NOTICE, index=1, notice=Notice("waiting", "it waits", {"wait_id": "a"}))]
WAKES = [TokenEvent(type=EventType.NOTICE, index=1, notice=Notice("woken", "it goes on"))]
TOKEN = [TokenEvent(type=EventType.TOKEN, index=0, tokens=(1,), text="a")]
DONE = [TokenEvent(type=EventType.DONE, index=1, finish_reason=FinishReason.STOP)]
QUIET: list[TokenEvent] = []


async def end_of(batches: Sequence[list[TokenEvent]]) -> tuple[str, str | None]:
    """The code of the error in which the call ends, `done` without one, and where the answer is; a keep-alive comes
    after five seconds.
    """

    async def events(*_: Any) -> AsyncGenerator[list[TokenEvent], None]:
        for batch in batches:
            await asyncio.sleep(0 if batch else 5)
            yield batch

    gateway = cast("Any", SimpleNamespace(follower=SimpleNamespace(events=events)))
    try:
        async for _ in events_to_done(gateway, "nina", "r", asleep_s=30.0):
            pass
    except ApiError as error:
        return error.code, error.location
    return "done", None


@pytest.mark.parametrize(
    ("batches", "code"),
    [
        ([TOKEN, WAITS, *[QUIET] * 6, DONE], "waiting"),
        ([TOKEN, WAITS, *[QUIET] * 5, DONE], "done"),
        ([TOKEN + WAITS, *[QUIET] * 6, DONE], "waiting"),
        ([WAITS, *[QUIET] * 5, WAKES, TOKEN, *[QUIET] * 9, DONE], "done"),
        ([WAITS, *[QUIET] * 5, WAITS, QUIET, DONE], "done"),
        ([TOKEN, *[QUIET] * 99, DONE], "done"),
        ([TOKEN, WAITS, QUIET], "waiting"),
        ([TOKEN, QUIET], "unavailable"),
    ],
)
@in_virtual_time
async def test_a_call_is_left_after_its_time_and_when_the_gateway_stops(
    batches: list[list[TokenEvent]], code: str
) -> None:
    assert await end_of(batches) == (code, "/v1/requests/r" if code == "waiting" else None)
