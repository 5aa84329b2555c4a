"""Reasoning as OpenAI's client reads it, from an engine that writes it first."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest
from openai import AsyncOpenAI

from tests.integration.gateway.gateway_process import GatewayProcess

HELLO = [{"role": "user", "content": "hello"}]


@pytest.fixture
async def client(gateway: GatewayProcess) -> AsyncIterator[AsyncOpenAI]:
    async with AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key="any", max_retries=0) as client:
        yield client


async def test_a_chat_completion_has_it_beside_its_content(client: AsyncOpenAI) -> None:
    plain = await client.chat.completions.create(model="demo", messages=HELLO, max_tokens=8)
    done = await client.chat.completions.create(model="demo", messages=HELLO, max_tokens=8, reasoning_effort="high")
    message = done.choices[0].message
    assert message.reasoning_content + message.content == plain.choices[0].message.content
    # Those of an event that also has text are not counted, and a busy worker puts several tokens into one.
    assert 0 < done.usage.completion_tokens_details.reasoning_tokens <= 4
    assert plain.usage.completion_tokens_details is None
    assert not hasattr(plain.choices[0].message, "reasoning_content")


async def test_chunks_have_it_before_the_content(client: AsyncOpenAI) -> None:
    stream = await client.chat.completions.create(
        model="demo", messages=HELLO, max_tokens=8, reasoning_effort="high", stream=True
    )
    deltas = [chunk.choices[0].delta async for chunk in stream]
    reasoning = [getattr(one, "reasoning_content", None) or "" for one in deltas]
    content = [one.content or "" for one in deltas]
    whole = await client.chat.completions.create(model="demo", messages=HELLO, max_tokens=8, reasoning_effort="high")
    assert "".join(reasoning) == whole.choices[0].message.reasoning_content
    assert "".join(content) == whole.choices[0].message.content
    assert max(at for at, one in enumerate(reasoning) if one) <= min(at for at, one in enumerate(content) if one)


async def test_a_response_has_it_as_an_item(client: AsyncOpenAI) -> None:
    events = [
        event
        async for event in await client.responses.create(
            model="demo", input="hello", max_output_tokens=8, reasoning={"effort": "high"}, stream=True
        )
    ]
    response = events[-1].response
    thought, message = response.output
    assert (thought.type, message.type) == ("reasoning", "message")
    deltas = {
        kind: "".join(event.delta for event in events if event.type == f"response.{kind}.delta")
        for kind in ("reasoning_text", "output_text")
    }
    assert deltas == {"reasoning_text": thought.content[0].text, "output_text": response.output_text}
    assert response.reasoning.effort == "high"
    assert 0 < response.usage.output_tokens_details.reasoning_tokens <= 4
    # The items go back as they came.
    again = await client.responses.create(
        model="demo", input=[*HELLO, *response.output, {"role": "user", "content": "go on"}], max_output_tokens=4
    )
    assert again.output_text


async def test_a_request_has_it_apart(gateway: GatewayProcess) -> None:
    async with httpx.AsyncClient(base_url=gateway.url, params={"user_id": "ann"}, timeout=60) as http:
        asked = {"prompt": "hello", "max_tokens": 8, "chat_template_kwargs": {"enable_thinking": True}}
        request_id = (await http.post("/v1/requests", json=asked)).json()["request_id"]
        await http.get(f"/v1/requests/{request_id}/events")
        read = (await http.get(f"/v1/requests/{request_id}")).json()
    assert len(read["reasoning"].split()) == 4
    assert len(read["text"].split()) == 4


async def test_values_of_a_template_are_plain(gateway: GatewayProcess) -> None:
    async with httpx.AsyncClient(base_url=gateway.url, timeout=60) as http:
        body = {"messages": HELLO, "chat_template_kwargs": {"style": {"deep": 1}}}
        refused = await http.post("/v1/chat/completions", json=body)
    assert refused.status_code == 400
    assert refused.json()["error"]["param"].startswith("chat_template_kwargs")
