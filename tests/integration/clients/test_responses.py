"""`/v1/responses` with OpenAI's own client."""

from __future__ import annotations

import json

import openai
import pytest
from openai import AsyncOpenAI

from tests.integration.clients.conftest import STATUS


async def test_a_response_has_text_usage_and_a_successor(client: AsyncOpenAI) -> None:
    first = await client.responses.create(model="demo", input="Hi, my name is Nina.")
    assert (first.status, first.object) == ("completed", "response")
    assert "Nina" in first.output_text
    assert first.usage.total_tokens == first.usage.input_tokens + first.usage.output_tokens
    second = await client.responses.create(model="demo", input="What is my name?", previous_response_id=first.id)
    assert "Nina" in second.output_text
    other = await client.responses.create(model="demo", input="My name is Wolfgang.", previous_response_id=first.id)
    branch = await client.responses.create(model="demo", input="What is my name?", previous_response_id=second.id)
    assert "Nina" in branch.output_text, "what another branch says is not part of this one"
    assert "Wolfgang" in other.output_text
    third = await client.responses.create(model="demo", input="What is my name?", previous_response_id=other.id)
    assert "Wolfgang" in third.output_text


async def test_a_response_that_is_not_stored_has_no_successor(client: AsyncOpenAI) -> None:
    first = await client.responses.create(model="demo", input="Hi, my name is Nina.", store=False)
    with pytest.raises(openai.BadRequestError, match="previous_request_id"):
        await client.responses.create(model="demo", input="What is my name?", previous_response_id=first.id)


async def test_responses_call_tools_and_take_their_results(client: AsyncOpenAI) -> None:
    tool = {"type": "function", **STATUS}
    first = await client.responses.create(model="demo", input="Where is my order 48213?", tools=[tool])
    (call,) = first.output
    assert (call.type, call.name, json.loads(call.arguments)) == (
        "function_call", "order_status", {"order_number": "48213"},
    )  # fmt: skip
    output = {
        "type": "function_call_output",
        "call_id": call.call_id,
        "output": '{"status": "packed", "arrives": "Friday"}',
    }
    second = await client.responses.create(model="demo", input=[output], tools=[tool], previous_response_id=first.id)
    assert "packed" in second.output_text
    items = [{"role": "user", "content": "Where is my order 48213?"}, call.model_dump(exclude_none=True), output]
    whole = await client.responses.create(model="demo", input=items, tools=[tool])
    assert whole.output_text == second.output_text


async def test_a_streamed_response_has_the_events_of_its_kind(client: AsyncOpenAI) -> None:
    stream = await client.responses.create(model="demo", input="Hi, my name is Nina.", stream=True)
    events = [event async for event in stream]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    kinds = list(dict.fromkeys(event.type for event in events))
    assert kinds == [
        "response.created", "response.in_progress", "response.output_item.added", "response.content_part.added",
        "response.output_text.delta", "response.output_text.done", "response.content_part.done",
        "response.output_item.done", "response.completed",
    ]  # fmt: skip
    text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    assert events[-1].response.output_text == text
    async with client.responses.stream(
        model="demo", input="Where is my order 48213?", tools=[{"type": "function", **STATUS}]
    ) as called:
        async for _ in called:
            pass
        final = await called.get_final_response()
    assert json.loads(final.output[0].arguments) == {"order_number": "48213"}


async def test_a_response_has_the_form_of_its_schema(client: AsyncOpenAI) -> None:
    schema = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}
    form = {"type": "json_schema", "name": "n", "schema": schema, "strict": True}
    done = await client.responses.create(model="demo", input="Hello", text={"format": form}, instructions="Be brief.")
    assert set(json.loads(done.output_text)) == {"ok"}
    cut = await client.responses.create(model="demo", input="Hello", max_output_tokens=1)
    assert (cut.status, cut.incomplete_details.reason) == ("incomplete", "max_output_tokens")
