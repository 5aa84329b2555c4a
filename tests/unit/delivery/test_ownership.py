"""A take-over that comes to nothing leaves nothing locked."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any, cast

from app.delivery.ownership import _give_up


class Held:
    """A store, a producer and a reader in one, whose clients never stop."""

    def __init__(self) -> None:
        self.closed = False

    def close(self) -> None:
        self.closed = True

    async def stop(self) -> None:
        await asyncio.Event().wait()


async def test_a_take_over_that_is_cancelled_while_it_gives_up_has_closed_its_store() -> None:
    held = cast(Any, Held())
    giving_up = asyncio.create_task(_give_up(held, held, held))
    await asyncio.sleep(0)
    giving_up.cancel()
    with suppress(asyncio.CancelledError):
        await giving_up
    assert held.closed
