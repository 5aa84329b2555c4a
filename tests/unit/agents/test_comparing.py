"""Shadows: what fails about them is dropped, and they are counted right."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from types import SimpleNamespace
from typing import Any, cast

from agents.comparing import MOST_SHADOWS, Comparing
from app.delivery.batches import Batches
from app.policy.shadows import Shadows

from app.features.quota.prices import PriceList
from app.policy.file import Policy
from app.settings import Settings
from app.wire.event import EventType, TokenEvent
from models.generation import FinishReason
from models.paced import paced
from models.registry import ModelRegistry
from tests.unit.agents.inflight_requests import inflight_of


class ToBeLeft:
    """A partition that leaves: its tasks are cancelled before they begin."""

    number = 0

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        task.cancel()
        return task


async def test_a_shadow_that_never_began_is_not_counted_for_ever() -> None:
    settings = Settings(_env_file=None)
    always = cast(Shadows, SimpleNamespace(arm_for=lambda _plan, _request_id: "paced"))
    batches = Batches(max_size=8, budget_s=0.0)
    comparing = Comparing(settings, ModelRegistry(paced(10)), batches, always, PriceList(settings, Policy()))
    inflight = inflight_of()
    inflight.answer = cast(Any, SimpleNamespace(text="an answer", index=2))
    end = TokenEvent(type=EventType.DONE, index=2, finish_reason=FinishReason.STOP)
    for _ in range(2 * MOST_SHADOWS):
        comparing.begin(cast(Any, ToBeLeft()), inflight, end)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    assert comparing._running == 0
