"""The talk behind `parley chat` and the demo, on a real broker."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest

from app.chat_session import ChatSession
from app.settings import Settings


@pytest.mark.parametrize("turns", range(8))
async def test_stop_that_is_cancelled_leaves_no_client_open(settings: Settings, turns: int) -> None:
    unclosed: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: unclosed.append(context))
    session = await ChatSession(settings, "ann", "c", None).start()
    stopping = asyncio.create_task(session.stop())
    for _ in range(turns):
        await asyncio.sleep(0)
    if turns:
        stopping.cancel()
    await asyncio.gather(stopping, return_exceptions=True)
    del session, stopping
    gc.collect()
    assert unclosed == []
