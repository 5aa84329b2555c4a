"""Responses in the background with OpenAI's own client: tools, structured output, errors, at several gateways."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI

from tests.integration.clients.conftest import STATUS
from tests.integration.gateway.gateway_process import GatewayProcess

OPEN = {"queued", "in_progress"}
TOOL = {"type": "function", **STATUS}
FORM = {
    "type": "json_schema",
    "name": "n",
    "schema": {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]},
    "strict": True,
}
KINDS: dict[str, dict[str, Any]] = {
    "text": {"input": "Hi, my name is Nina."},
    "tool": {"input": "Where is my order 48213?", "tools": [TOOL]},
    "form": {"input": "Hello", "text": {"format": FORM}, "instructions": "Be brief."},
    "cut": {"input": "Hello", "max_output_tokens": 1},
    "error": {"input": "word " * 12_000},
    "logprobs": {"input": "Hello", "include": ["message.output_text.logprobs"], "top_logprobs": 2},
}


@pytest.fixture
async def elsewhere(gateway: GatewayProcess, tmp_path: Path) -> AsyncIterator[AsyncOpenAI]:
    """A client of a gateway that begins when everything has been written."""
    with GatewayProcess(gateway.settings, tmp_path / "gateway.log") as other:
        async with AsyncOpenAI(base_url=f"{other.url}/v1", api_key="any", max_retries=0) as client:
            yield client
        assert other.stop() == 0


async def ended(client: AsyncOpenAI, name: str) -> Any:
    async with asyncio.timeout(120):
        while (response := await client.responses.retrieve(name)).status in OPEN:
            await asyncio.sleep(0.05)
    return response


async def streamed(client: AsyncOpenAI, name: str, **options: Any) -> list[dict[str, Any]]:
    stream = await client.responses.retrieve(name, stream=True, **options)
    return [event.to_dict() async for event in stream]


@pytest.mark.parametrize("kind", KINDS)
async def test_its_events_are_the_same_live_again_and_elsewhere(
    client: AsyncOpenAI, elsewhere: AsyncOpenAI, kind: str
) -> None:
    body = {"model": "demo", **KINDS[kind]}
    live = [event async for event in await client.responses.create(background=True, stream=True, **body)]
    first = live[0].response
    assert (first.status, first.background, first.id[:5]) == ("queued", True, "resp_")
    sent = [event.to_dict() for event in live]
    assert [one["sequence_number"] for one in sent] == list(range(len(sent)))
    assert await streamed(client, first.id) == sent
    assert await streamed(elsewhere, first.id) == sent
    for after in (0, 1, len(sent) // 2, len(sent) - 2):
        assert await streamed(elsewhere, first.id, starting_after=after) == sent[after + 1 :]
    assert await streamed(client, first.id, starting_after=len(sent) - 1) == []
    last = sent[-1]["response"]
    for one in (client, elsewhere):
        assert (await one.responses.retrieve(first.id)).to_dict() == last
    expected = {"cut": "incomplete", "error": "failed"}.get(kind, "completed")
    assert last["status"] == expected


async def test_without_a_stream_it_is_polled(client: AsyncOpenAI) -> None:
    begun = await client.responses.create(model="demo", input="Hi, my name is Nina.", background=True)
    assert (begun.status, begun.output) == ("queued", [])
    done = await ended(client, begun.id)
    assert (done.status, done.created_at) == ("completed", begun.created_at)
    assert "Nina" in done.output_text
    again = await client.responses.create(model="demo", input="What is my name?", previous_response_id=begun.id)
    assert "Nina" in again.output_text
    assert (await client.responses.retrieve(again.id)).to_dict() == again.to_dict()


async def test_tools_go_on_in_the_background(client: AsyncOpenAI) -> None:
    begun = await client.responses.create(model="demo", input="Where is my order 48213?", tools=[TOOL], background=True)
    (call,) = (await ended(client, begun.id)).output
    assert json.loads(call.arguments) == {"order_number": "48213"}
    output = {"type": "function_call_output", "call_id": call.call_id, "output": '{"status": "packed"}'}
    second = await client.responses.create(
        model="demo", input=[output], tools=[TOOL], previous_response_id=begun.id, background=True
    )
    assert (await ended(client, second.id)).output_text


async def test_input_items_come_from_the_log(client: AsyncOpenAI, elsewhere: AsyncOpenAI) -> None:
    items = [
        {"role": "developer", "content": "Be kind."},
        {"role": "user", "content": [{"type": "input_text", "text": "Hello!"}]},
        {"role": "assistant", "content": "Hello! How can I help?"},
        {"role": "user", "content": "Hi, my name is Nina."},
    ]
    begun = await client.responses.create(
        model="demo", input=items, instructions="Be brief.", conversation={"id": "a talk/with.dots"}, background=True
    )
    assert begun.conversation.id == "a talk/with.dots"
    for one in (client, elsewhere):
        listed = [item async for item in one.responses.input_items.list(begun.id, order="asc", limit=2)]
        texts = [(item.role, item.content[0].text) for item in listed]
        assert texts == [
            ("developer", "Be kind."), ("user", "Hello!"), ("assistant", "Hello! How can I help?"),
            ("user", "Hi, my name is Nina."),
        ]  # fmt: skip
        newest = await one.responses.input_items.list(begun.id, limit=1)
        assert (newest.data[0].content[0].text, newest.has_more) == ("Hi, my name is Nina.", True)
        assert (await one.responses.retrieve(begun.id)).instructions == "Be brief."


async def test_the_tools_that_are_allowed_are_called_alone(client: AsyncOpenAI) -> None:
    other = {"type": "function", "name": "other", "parameters": {"type": "object", "properties": {}}}
    choice = {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "other"}]}
    begun = await client.responses.create(
        model="demo", input="Where is my order 48213?", tools=[TOOL, other], tool_choice=choice, background=True
    )
    done = await ended(client, begun.id)
    assert [item.name for item in done.output if item.type == "function_call"] == ["other"]
    assert (done.tool_choice.to_dict(), [tool.name for tool in done.tools]) == (choice, ["order_status", "other"])


async def test_a_deleted_response_is_gone_everywhere(client: AsyncOpenAI, elsewhere: AsyncOpenAI) -> None:
    begun = await client.responses.create(model="demo", input="Hello", background=True)
    await ended(elsewhere, begun.id)
    await client.responses.delete(begun.id)
    with pytest.raises(openai.NotFoundError):
        await client.responses.retrieve(begun.id)
    async with asyncio.timeout(120):
        while True:
            try:
                await elsewhere.responses.retrieve(begun.id)
            except openai.NotFoundError:
                break
            await asyncio.sleep(0.05)


async def test_what_is_not_stored_is_not_retrieved(client: AsyncOpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="store"):
        await client.responses.create(model="demo", input="Hello", background=True, store=False)
    done = await client.responses.create(model="demo", input="Hello", store=False)
    with pytest.raises(openai.NotFoundError):
        await client.responses.retrieve(done.id)


async def test_what_has_ended_or_is_not_of_the_background_cannot_be_cancelled(client: AsyncOpenAI) -> None:
    begun = await client.responses.create(model="demo", input="Hello", background=True)
    await ended(client, begun.id)
    with pytest.raises(openai.BadRequestError, match="ended"):
        await client.responses.cancel(begun.id)
    done = await client.responses.create(model="demo", input="Hello")
    with pytest.raises(openai.BadRequestError, match="synchronous"):
        await client.responses.cancel(done.id)
