"""Commands that are ended by a signal, whatever their libraries do with the cancellation."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress

import pytest

from app.commands import terminal
from app.commands.terminal import run


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_cancellation_that_a_library_drops_comes_again(
    number: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(terminal, "_CANCEL_AGAIN_S", 0.05)
    dropped = 0
    is_clean = False

    async def work() -> None:
        nonlocal dropped, is_clean
        os.kill(os.getpid(), number)
        for _ in range(2):
            with suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
            dropped += 1
        try:
            await asyncio.Event().wait()
        finally:
            is_clean = True

    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit) as ended:
        run(work())
    assert (ended.value.code, dropped, is_clean) == (0, 2, True)
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


def test_a_second_ctrl_c_ends_a_cleanup_that_does_not_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminal, "_CANCEL_AGAIN_S", 60.0)

    async def work() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        try:
            await asyncio.Event().wait()
        finally:
            os.kill(os.getpid(), signal.SIGINT)
            await asyncio.Event().wait()

    with pytest.raises(SystemExit) as ended:
        run(work())
    assert ended.value.code == 0
