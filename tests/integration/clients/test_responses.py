"""`/v1/responses` with OpenAI's own client."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

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


async def test_a_conversation_brings_its_earlier_turns(client: AsyncOpenAI) -> None:
    talk = await client.conversations.create()
    assert (talk.object, talk.metadata) == ("conversation", {})
    first = await client.responses.create(model="demo", input="Hi, my name is Nina.", conversation=talk.id)
    assert first.conversation.id == talk.id
    second = await client.responses.create(model="demo", input="What is my name?", conversation={"id": talk.id})
    assert "Nina" in second.output_text
    apart = await client.responses.create(model="demo", input="What is my name?", conversation="another")
    assert "Nina" not in apart.output_text
    stream = await client.responses.create(
        model="demo", input=[{"role": "user", "content": "What is my name?"}], instructions="Be brief.",
        conversation=talk.id, stream=True,
    )  # fmt: skip
    *_, last = [event async for event in stream]
    assert "Nina" in last.response.output_text
    chained = await client.responses.create(model="demo", input="What is my name?", previous_response_id=second.id)
    assert "Nina" in chained.output_text, "its responses can be continued by their ids, too"
    listed = [item async for item in client.conversations.items.list(talk.id, order="asc", limit=3)]
    said = [(item.role, item.content[0].text) for item in listed]
    assert said[:4] == [
        ("user", "Hi, my name is Nina."), ("assistant", first.output_text),
        ("user", "What is my name?"), ("assistant", second.output_text),
    ]  # fmt: skip
    assert len(said) == 8
    assert (await client.conversations.retrieve(talk.id)).created_at == talk.created_at


async def test_a_deleted_conversation_is_gone_with_its_responses_and_begins_anew(client: AsyncOpenAI) -> None:
    talk = (await client.conversations.create()).id
    first = await client.responses.create(model="demo", input="Hi, my name is Nina.", conversation=talk)
    deleted = await client.conversations.delete(talk)
    assert (deleted.id, deleted.object, deleted.deleted) == (talk, "conversation.deleted", True)
    assert [item async for item in client.conversations.items.list(talk)] == []
    with pytest.raises(openai.NotFoundError):
        await client.responses.retrieve(first.id)
    with pytest.raises(openai.BadRequestError, match="previous_response_id: names no response") as refused:
        await client.responses.create(model="demo", input="What is my name?", previous_response_id=first.id)
    assert refused.value.param == "previous_response_id"
    anew = await client.responses.create(model="demo", input="What is my name?", conversation=talk)
    assert "Nina" not in anew.output_text


async def test_a_conversation_takes_the_results_of_its_calls_and_of_the_background(client: AsyncOpenAI) -> None:
    tool = {"type": "function", **STATUS}
    talk = (await client.conversations.create()).id
    first = await client.responses.create(
        model="demo", input="Where is my order 48213?", tools=[tool], conversation=talk, background=True
    )
    # Requests of a conversation are answered in order, so the calls are there.
    while (first := await client.responses.retrieve(first.id)).status in {"queued", "in_progress"}:
        pass
    (call,) = first.output
    output = {"type": "function_call_output", "call_id": call.call_id, "output": '{"status": "packed"}'}
    second = await client.responses.create(model="demo", input=[output], tools=[tool], conversation=talk)
    assert "packed" in second.output_text
    third = await client.responses.create(model="demo", input="What was my order number?", conversation=talk)
    assert "48213" in third.output_text
    items = [item async for item in client.conversations.items.list(talk, order="asc")]
    assert [item.type for item in items[:2]] == ["message", "function_call"]
    assert (items[1].name, items[1].call_id) == (call.name, call.call_id)


async def test_what_a_created_conversation_cannot_have_is_refused_by_name(client: AsyncOpenAI) -> None:
    for field, value in (("items", [{"role": "user", "content": "Hello!"}]), ("metadata", {"topic": "shop"})):
        with pytest.raises(openai.BadRequestError) as refused:
            await client.conversations.create(**{field: value})
        assert refused.value.param == field


async def test_a_response_that_is_not_stored_has_no_successor(client: AsyncOpenAI) -> None:
    first = await client.responses.create(model="demo", input="Hi, my name is Nina.", store=False)
    with pytest.raises(openai.BadRequestError, match="previous_response_id: names no response") as refused:
        await client.responses.create(model="demo", input="What is my name?", previous_response_id=first.id)
    assert refused.value.param == "previous_response_id"


async def test_a_refusal_has_the_names_of_the_call(client: AsyncOpenAI) -> None:
    for asked, param in (
        ({"input": []}, "input"),
        ({"input": "Hi", "previous_response_id": "resp_nope"}, "previous_response_id"),
        ({"input": "Hi", "previous_response_id": "nope"}, "previous_response_id"),
        ({"input": "Hi", "max_output_tokens": 0}, "max_output_tokens"),
        ({"input": "Hi", "model": "nope"}, "model"),
    ):
        with pytest.raises(openai.APIStatusError) as refused:
            await client.responses.create(**{"model": "demo", **asked})
        assert (refused.value.param, refused.value.status_code) == (param, 404 if param == "model" else 400)
        assert refused.value.body["message"].startswith(f"{param}: ")


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


async def test_items_may_be_named_instead_of_sent(client: AsyncOpenAI) -> None:
    tool = {"type": "function", **STATUS}
    question = {"role": "user", "content": "Where is my order 48213?"}
    first = await client.responses.create(model="demo", input=[question], tools=[tool])
    (call,) = first.output
    output = {"type": "function_call_output", "call_id": call.call_id, "output": '{"status": "packed"}'}
    named = {"type": "item_reference", "id": call.id}
    second = await client.responses.create(model="demo", input=[question, named, output], tools=[tool])
    sent = await client.responses.create(model="demo", input=[question, call.to_dict(), output], tools=[tool])
    assert "packed" in second.output_text
    assert second.usage.input_tokens == sent.usage.input_tokens
    (asked, *_) = (await client.responses.input_items.list(first.id, order="asc")).data
    items = [{"id": asked.id}, named, output, {"id": second.output[0].id}, {"role": "user", "content": "Thanks"}]
    third = await client.responses.create(model="demo", input=items, tools=[tool])
    whole = [question, call.to_dict(), output, second.output[0].to_dict(), items[-1]]
    assert (
        third.usage.input_tokens
        == (await client.responses.create(model="demo", input=whole, tools=[tool])).usage.input_tokens
    )


@pytest.mark.parametrize("way", ["previous id", "conversation", "items", "references"])
async def test_three_turns_with_a_tool_see_each_other(client: AsyncOpenAI, way: str) -> None:
    asking = partial(client.responses.create, model="demo", tools=[{"type": "function", **STATUS}], temperature=0)
    talk: list[Any] = []
    more: dict[str, Any] = {"conversation": (await client.conversations.create()).id} if way == "conversation" else {}
    texts, given = [], [{"role": "user", "content": "Where is my order 48213?"}]
    for question in ("What was my order number?", "What are your opening hours?", None):
        while given:
            talk += given
            last = await asking(input=talk if way in {"items", "references"} else given, **more)
            more = {"previous_response_id": last.id} if way == "previous id" else more
            talk += [one.to_dict() if way == "items" else {"id": one.id} for one in last.output]
            calls = [one for one in last.output if one.type == "function_call"]
            given = [
                {"type": "function_call_output", "call_id": one.call_id, "output": '{"status": "packed"}'}
                for one in calls
            ]
        texts.append(last.output_text)
        given = [{"role": "user", "content": question}] if question else []
    assert [word in text for word, text in zip(("packed", "48213", "8 am"), texts, strict=True)] == [True] * 3, texts


async def test_an_item_that_is_not_kept_is_refused_by_its_id(client: AsyncOpenAI) -> None:
    unstored = await client.responses.create(model="demo", input="Hi, my name is Nina.", store=False)
    deleted = await client.responses.create(model="demo", input="Hi, my name is Nina.")
    await client.responses.delete(deleted.id)
    kept = await client.responses.create(model="demo", input="Hi, my name is Nina.")
    another = client.with_options(default_query={"user_id": "another"})
    for name, asking in (
        (unstored.output[0].id, client), (deleted.output[0].id, client), (kept.output[0].id, another),
        (f"{kept.output[0].id}9", client), ("msg_unknown", client), ("x" * 5000, client), ("", client),
    ):  # fmt: skip
        with pytest.raises(openai.NotFoundError, match="input: item with id") as refused:
            await asking.responses.create(model="demo", input=[{"type": "item_reference", "id": name}])
        assert refused.value.param == "input"
        assert name[:400] in refused.value.body["message"]


async def test_an_item_of_a_conversation_may_be_named(client: AsyncOpenAI) -> None:
    talk = (await client.conversations.create()).id
    await client.responses.create(model="demo", input="Hi, my name is Nina.", conversation=talk)
    items = [{"type": "item_reference", "id": one.id} async for one in client.conversations.items.list(talk)]
    again = await client.responses.create(
        model="demo", input=[*reversed(items), {"role": "user", "content": "What is my name?"}]
    )
    assert "Nina" in again.output_text


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


async def test_a_response_that_was_cut_within_a_call_is_continued_with_its_question(client: AsyncOpenAI) -> None:
    tool = {"type": "function", **STATUS}
    cut = await client.responses.create(
        model="demo", input="My name is Nina.", tools=[tool], tool_choice="required", max_output_tokens=12
    )
    assert (cut.status, cut.output_text) == ("incomplete", ""), cut.output
    second = await client.responses.create(model="demo", input="What is my name?", previous_response_id=cut.id)
    assert "Nina" in second.output_text
