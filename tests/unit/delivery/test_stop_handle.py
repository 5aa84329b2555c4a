from __future__ import annotations

import asyncio

from app.delivery.stop_handle import StopHandle
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
