"""A plug-in's room: plain and async functions, on the plug-in's thread or in the event loop of the caller."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from parley_client.plugins import Kind, Plugin, Refused

from app.plugins.running import PluginFailedError, PluginRoom

PLUGIN = Plugin(Kind.FEATURES, "words", "words:Words", "words", "1")


def plain(result: Any) -> Any:
    if isinstance(result, BaseException):
        raise result
    return result, threading.current_thread()


async def coroutine(result: Any) -> Any:
    await asyncio.sleep(0)
    return plain(result)


def plain_with_coroutine(result: Any) -> Any:
    return coroutine(result)


@pytest.mark.parametrize("function", [plain, coroutine, plain_with_coroutine])
@pytest.mark.parametrize("blocks", [True, False])
async def test_a_function_of_any_form_has_its_result_or_its_error(function: Callable[[Any], Any], blocks: bool) -> None:
    room = PluginRoom(PLUGIN, blocks=blocks)
    result, thread = await room.call(partial(function, 7))
    assert result == 7
    assert (thread is threading.current_thread()) != blocks
    with pytest.raises(Refused, match="not today"):
        await room.call(partial(function, Refused("not today")))
    for error in (SystemExit(3), KeyError("word"), asyncio.CancelledError()):
        with pytest.raises(PluginFailedError, match=type(error).__name__):
            await room.call(partial(function, error))
    assert (room.calls.done, room.calls.refused, room.calls.failed) == (1, 1, 3)
    await room.close(lambda: None)
