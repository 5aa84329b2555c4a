from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from app.delivery.stop_handle import StopHandle, StoppedError
from models.interface.generation import FinishReason
from tests.virtual_time import in_virtual_time


def test_stop_handle_keeps_the_first_reason_and_calls_every_listener_once() -> None:
    handle, calls = StopHandle(), list[tuple[str, FinishReason]]()
    handle.listen(lambda reason: calls.append(("waiting", reason)))
    with handle.listening(lambda reason: calls.append(("stream", reason))):
        handle.now(FinishReason.DEADLINE)
        handle.now(FinishReason.CANCELLED)
    assert calls == [("waiting", FinishReason.DEADLINE), ("stream", FinishReason.DEADLINE)]
    assert handle.reason is FinishReason.DEADLINE


def test_stop_handle_calls_a_late_listener_at_once() -> None:
    handle, calls = StopHandle(), list[FinishReason]()
    handle.now(FinishReason.CANCELLED)
    with handle.listening(calls.append):
        assert calls == [FinishReason.CANCELLED]


def test_stop_handle_calls_nothing_that_has_ended() -> None:
    handle, calls = StopHandle(), list[FinishReason]()
    with handle.listening(calls.append):
        pass
    handle.now(FinishReason.CANCELLED)
    assert not calls


@in_virtual_time
async def test_stop_handle_stops_at_its_deadline_unless_it_is_closed() -> None:
    open_one, closed_one = StopHandle(), StopHandle()
    for handle in (open_one, closed_one):
        handle.after(0.0, FinishReason.DEADLINE)
    closed_one.close()
    await asyncio.sleep(0.01)
    assert (open_one.reason, closed_one.reason) == (FinishReason.DEADLINE, None)


async def _work(seconds: float = 2.0) -> str:
    await asyncio.sleep(seconds)
    return "done"


@in_virtual_time
async def test_work_ends_by_itself_or_with_the_stop() -> None:
    handle = StopHandle()
    handle.after(1.0, FinishReason.CANCELLED)
    assert await handle.run(_work(0.5)) == "done"
    with pytest.raises(StoppedError):
        await handle.run(_work())
    with pytest.raises(StoppedError):
        await handle.run(_work(0.0))
    mine = asyncio.current_task()
    assert mine is not None
    assert mine.cancelling() == 0


@in_virtual_time
async def test_what_stops_its_own_request_has_no_result() -> None:
    handle = StopHandle()

    async def stops() -> str:
        handle.now(FinishReason.CANCELLED)
        return "done"

    with pytest.raises(StoppedError):
        await handle.run(stops())
    await asyncio.sleep(0)  # no cancel is left for what comes then


@in_virtual_time
async def test_an_error_of_the_work_is_no_stop() -> None:
    with pytest.raises(TimeoutError):
        await StopHandle().run(asyncio.wait_for(_work(), 0.5))


@in_virtual_time
@pytest.mark.parametrize("before", [bool, StopHandle.close, lambda handle: handle.now(FinishReason.CANCELLED)])
async def test_who_is_cancelled_is_cancelled_whatever_was_before(before: Callable[[StopHandle], object]) -> None:
    handle = StopHandle()
    task = asyncio.ensure_future(handle.run(_work()))
    await asyncio.sleep(0.5)
    before(handle)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
