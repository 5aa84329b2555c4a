"""`while_busy` over HTTP, WebSocket, OpenAI's client and the Python package."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

import httpx
import openai
import pytest
from openai import AsyncOpenAI
from parley_client import AsyncParley, ParleyError

from tests.integration.gateway.gateway_process import GatewayProcess
from tests.integration.gateway.test_socket import heard, opened, say, up_to_the_end

HELLO = [{"role": "user", "content": "hello"}]


def asked(**fields: Any) -> dict[str, Any]:
    return {"extra_body": fields, "model": "demo", "messages": HELLO}


async def test_openais_client_interrupts_and_is_rejected(gateway: GatewayProcess) -> None:
    conversation = uuid.uuid4().hex
    async with AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key="any") as client:
        create = client.chat.completions.create
        stream = await create(**asked(conversation_id=conversation), max_tokens=100_000, stream=True)
        chunks = aiter(stream)
        for _ in range(3):
            await anext(chunks)
        with pytest.raises(openai.ConflictError) as busy:  # it is not repeated, although the client repeats others
            await create(**asked(conversation_id=conversation, while_busy="reject"), max_tokens=3)
        assert busy.value.code == "conversation_busy"
        assert busy.value.response.headers["x-should-retry"] == "false"
        done = await create(**asked(conversation_id=conversation, while_busy="interrupt"), max_tokens=3)
        assert done.choices[0].finish_reason == "length"
        async with asyncio.timeout(60):
            left = [chunk async for chunk in chunks]
        reasons = [chunk.choices[0].finish_reason for chunk in left if chunk.choices]
        assert [one for one in reasons if one] == ["stop"]
        with pytest.raises(openai.BadRequestError) as wrong:
            await create(**asked(while_busy="never"))
        assert wrong.value.param == "while_busy"


async def test_a_socket_hears_that_an_answer_is_rolled_back(gateway: GatewayProcess) -> None:
    async with opened(gateway) as socket:
        first, second, conversation = (uuid.uuid4().hex for _ in range(3))
        shared = {"type": "ask", "conversation_id": conversation}
        await say(socket, **shared, request_id=first, prompt="speak", max_tokens=100_000)
        begun: list[dict[str, Any]] = []
        while not begun or begun[-1]["type"] != "token":
            begun.append(await heard(socket))
        await say(socket, **shared, request_id=second, prompt="no, this", max_tokens=2, while_busy="rollback")
        events = [*begun, *await up_to_the_end(socket), *await up_to_the_end(socket)]
        notices = [one["notice"] for one in events if one["request_id"] == first and one["type"] == "notice"]
        assert {"by": second, "rolled_back": True} in [one.get("details") for one in notices]
        ends = {one["request_id"]: one.get("finish_reason") for one in events if one["type"] == "done"}
        assert ends == {first: "cancelled", second: "length"}


async def test_the_python_package_interrupts(gateway: GatewayProcess, http: httpx.AsyncClient) -> None:
    conversation = uuid.uuid4().hex
    async with AsyncParley(gateway.url) as parley:
        first = await parley.ask("speak", conversation=conversation, max_tokens=100_000)
        with pytest.raises(ParleyError) as busy:
            await (await parley.ask("x", conversation=conversation, max_tokens=2, while_busy="reject")).result()
        assert busy.value.code == "conversation_busy"
        second = await parley.ask("stop", conversation=conversation, max_tokens=2, while_busy="interrupt")
        ends = [(await one.result()).end for one in (second, first)]
        assert [end and end["finish_reason"] for end in ends] == ["length", "cancelled"]
        kept = (await http.get(f"/v1/conversations/{conversation}")).json()
        assert len(kept["turns"]) == 2
