"""`GET /v1/requests/{id}/tool-results`: results of tools, read from the log for their owner until they are erased."""

from __future__ import annotations

import asyncio
import time
import uuid
from typing import Any

import httpx
import pytest

from app.wire.event import TOOL_RESULTS, EventType, Notice, TokenEvent
from app.wire.ids import new_request_id, partition_for
from models.interface.generation import FinishReason
from tests.integration.gateway.gateway_process import GatewayProcess
from tests.integration.scripted_worker import ScriptedWorker

NINA = {"Authorization": "Bearer key-of-nina-0123"}
OMAR = {"Authorization": "Bearer key-of-omar-0123"}
pytestmark = pytest.mark.asyncio(loop_scope="module")
FIRST = {"tool_call_id": "call-1", "content": "on its way"}
SECOND = {"tool_call_id": "call-2", "content": "Thursday"}


async def written(scripted: ScriptedWorker, request_id: str, *details: Any) -> None:
    """An answer of Nina's, with notices that have these details, and its end."""
    partition = partition_for("nina", scripted.settings.partitions)
    about = {"request_id": request_id, "user_id": "nina", "conversation_id": "c"}
    epoch = await scripted.fence(partition)
    for one in details:
        notice = Notice(TOOL_RESULTS, "the answer goes on", one)
        await scripted.say(partition, TokenEvent(type=EventType.NOTICE, epoch=epoch, notice=notice, **about))
    end = TokenEvent(type=EventType.DONE, index=0, epoch=epoch, finish_reason=FinishReason.STOP, **about)
    await scripted.say(partition, end)


def id_at(seconds: float) -> str:
    """A UUIDv7 of a time that its maker has chosen."""
    return str(uuid.UUID(int=(int(seconds * 1000) << 80) | (7 << 76) | (2 << 62) | 1))


async def results(http: httpx.AsyncClient, request_id: str, who: dict[str, str]) -> Any:
    reply = await http.get(f"/v1/requests/{request_id}/tool-results", headers=who)
    assert reply.status_code == 200, reply.text
    return reply.json()["results"]


async def test_they_are_their_owner_s_and_what_is_none_is_left_out(
    scripted: ScriptedWorker, guarded: GatewayProcess
) -> None:
    mine, another = new_request_id(), new_request_id()
    odd = ({"results": "none"}, {"results": [{"tool_call_id": 1}]}, None)
    again = {**SECOND, "content": "Friday"}
    await written(scripted, another, {"results": [{"tool_call_id": "call-1", "content": "of another"}]})
    await written(scripted, mine, *odd, {"results": [FIRST, SECOND]}, {"results": [again]})
    async with httpx.AsyncClient(base_url=guarded.url, timeout=60) as http:
        assert await results(http, f"{mine}", NINA) == [FIRST, again]
        assert await results(http, mine, OMAR) == []
        assert await results(http, "without-a-time", NINA) == []
        assert (await http.get(f"/v1/requests/{mine}/tool-results")).status_code == 401


@pytest.mark.parametrize("ahead_s", [0.0, 30.0])
async def test_an_erasure_hides_them_whatever_time_the_id_names(
    scripted: ScriptedWorker, guarded: GatewayProcess, ahead_s: float
) -> None:
    request_id = id_at(time.time() + ahead_s)
    await written(scripted, request_id, {"results": [FIRST]})
    async with httpx.AsyncClient(base_url=guarded.url, timeout=60) as http:
        assert await results(http, request_id, NINA) == [FIRST]
        assert (await http.delete("/v1/users/nina", headers=NINA)).status_code == 202
        assert await results(http, request_id, NINA) == []
        async with asyncio.timeout(120):  # until the time of a new record is later than that of the erasure
            while True:
                later = new_request_id()
                await written(scripted, later, {"results": [SECOND]})
                if await results(http, later, NINA) == [SECOND]:
                    break
