"""The real `openai` client against the gateway."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import httpx
import openai
import pytest
from aiokafka import ConsumerRecord
from openai import AsyncOpenAI

from tests.integration.gateway.gateway_process import GatewayProcess
from tests.integration.worker.client import Client

HELLO = [{"role": "user", "content": "hello"}]


@pytest.fixture
async def client(gateway: GatewayProcess) -> AsyncIterator[AsyncOpenAI]:
    async with AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key="any", max_retries=0) as client:
        yield client


async def test_a_whole_answer_has_text_reason_and_usage(client: AsyncOpenAI) -> None:
    done = await client.chat.completions.create(model="demo", messages=HELLO, max_tokens=5)
    assert done.choices[0].finish_reason == "length"
    assert len(done.choices[0].message.content.split()) == 5
    assert done.usage.completion_tokens == 5
    assert done.usage.total_tokens == done.usage.prompt_tokens + 5


async def test_a_stream_says_the_same_piece_by_piece(client: AsyncOpenAI) -> None:
    stream = await client.chat.completions.create(
        model="demo", messages=HELLO, max_tokens=9, stream=True, stream_options={"include_usage": True}
    )
    chunks = [chunk async for chunk in stream]
    whole = await client.chat.completions.create(model="demo", messages=HELLO, max_tokens=9)
    sent = [chunk.choices[0] for chunk in chunks if chunk.choices]
    assert sent[0].delta.role == "assistant"
    assert "".join(one.delta.content or "" for one in sent) == whole.choices[0].message.content
    assert [one.finish_reason for one in sent if one.finish_reason] == ["length"]
    assert chunks[-1].choices == []
    assert chunks[-1].usage == whole.usage
    assert len({chunk.id for chunk in chunks}) == 1


async def test_without_include_usage_no_chunk_has_any(client: AsyncOpenAI) -> None:
    stream = await client.chat.completions.create(model="demo", messages=HELLO, max_tokens=2, stream=True)
    assert {chunk.usage async for chunk in stream} == {None}


async def test_what_the_worker_refuses_has_openais_form(client: AsyncOpenAI) -> None:
    for stream in (False, True):
        with pytest.raises(openai.NotFoundError) as refused:
            await client.chat.completions.create(model="no-such-model", messages=HELLO, stream=stream)
        assert refused.value.code == "model_not_found"


@pytest.mark.parametrize(
    ("wrong", "param"),
    [
        ({"temperature": 3}, "temperature"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"n": 0}, "n"),
        ({"n": 129}, "n"),
        ({"presence_penalty": 3}, "presence_penalty"),
        ({"frequency_penalty": -3}, "frequency_penalty"),
        ({"logit_bias": {"7": 101}}, "logit_bias"),
        ({"top_logprobs": 3}, "top_logprobs"),
        ({"tools": [{"type": "custom", "name": "f"}]}, "tools"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"prediction": 1, "verbosity": "high"}, "verbosity"),
        ({"response_format": {"type": "yaml"}}, "response_format.type"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages"),
        ({"messages": [{"role": "critic", "content": "x"}]}, "messages[0].role"),
        ({"stop": ["x"] * 17}, "stop"),
        ({"seed": "seven"}, "seed"),
    ],
)
async def test_what_is_wrong_is_refused_with_the_name_of_the_field(
    client: AsyncOpenAI, wrong: dict[str, object], param: str
) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        await client.chat.completions.create(**{"model": "demo", "messages": HELLO, **wrong})
    assert (refused.value.code, refused.value.param) == ("invalid_request", param)


async def test_a_prompt_that_is_too_long_is_refused_before_it_is_sent(client: AsyncOpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        await client.chat.completions.create(model="demo", messages=[{"role": "user", "content": "x" * 70_000}])
    assert refused.value.code == "prompt_too_long"


async def test_models_are_those_that_the_worker_serves(client: AsyncOpenAI) -> None:
    await client.chat.completions.create(model="demo", messages=HELLO, max_tokens=1)
    names = [model.id async for model in client.models.list()]
    assert names == ["demo"]
    assert (await client.models.retrieve("demo")).id == "demo"


async def test_parts_of_content_and_a_developer_are_taken(client: AsyncOpenAI) -> None:
    parts = [{"type": "text", "text": "hel"}, {"type": "text", "text": "lo"}]
    done = await client.chat.completions.create(
        model="demo",
        messages=[{"role": "developer", "content": "be brief"}, {"role": "user", "content": parts}],
        max_completion_tokens=3,
        seed=7,
        stop=["never written"],
    )
    assert done.usage.completion_tokens == 3


async def test_a_stream_is_cancelled_by_the_id_of_its_request(client: AsyncOpenAI, http: httpx.AsyncClient) -> None:
    stream = await client.chat.completions.create(model="demo", messages=HELLO, max_tokens=100_000, stream=True)
    request_id = stream.response.headers["x-request-id"]
    chunks = []
    async for chunk in stream:
        chunks.append(chunk)
        if len(chunks) == 3:
            await http.delete(f"/v1/requests/{request_id}")
    assert chunks[-1].parley["finish_reason"] == "cancelled"


async def test_several_choices_are_one_reply_whose_usage_is_their_sum(client: AsyncOpenAI) -> None:
    done = await client.chat.completions.create(model="demo", messages=HELLO, max_tokens=5, n=3, seed=2**63 - 2)
    assert [choice.index for choice in done.choices] == [0, 1, 2]
    assert all(len(choice.message.content.split()) == 5 for choice in done.choices)
    one = await client.chat.completions.create(model="demo", messages=HELLO, max_tokens=5)
    assert done.usage.completion_tokens == 15
    assert done.usage.prompt_tokens == one.usage.prompt_tokens
    assert len({choice.parley["request_id"] for choice in done.choices}) == 3


async def test_several_choices_come_in_one_stream_each_whole(client: AsyncOpenAI) -> None:
    stream = await client.chat.completions.create(
        model="demo", messages=HELLO, max_tokens=7, n=4, stream=True, stream_options={"include_usage": True}
    )
    chunks = [chunk async for chunk in stream]
    for number in range(4):
        mine = [one for chunk in chunks for one in chunk.choices if one.index == number]
        assert mine[0].delta.role == "assistant"
        assert len("".join(one.delta.content or "" for one in mine).split()) == 7
        assert [one.finish_reason for one in mine if one.finish_reason] == ["length"]
    assert chunks[-1].usage.completion_tokens == 28
    assert [chunk.usage for chunk in chunks[:-1]] == [None] * (len(chunks) - 1)


async def test_an_error_of_a_choice_is_the_error_of_all(client: AsyncOpenAI) -> None:
    for stream in (False, True):
        with pytest.raises(openai.NotFoundError):
            await client.chat.completions.create(model="no-such-model", messages=HELLO, n=2, stream=stream)


async def test_a_conversation_goes_on_with_the_first_choice(client: AsyncOpenAI) -> None:
    done = await client.chat.completions.create(
        model="demo", messages=HELLO, max_tokens=1, n=2, extra_body={"conversation_id": "talk"}
    )
    assert [choice.parley["conversation_id"] == "talk" for choice in done.choices] == [True, False]


async def test_one_choice_of_several_is_cancelled_and_the_others_go_on(
    client: AsyncOpenAI, http: httpx.AsyncClient
) -> None:
    stream = await client.chat.completions.create(model="demo", messages=HELLO, max_tokens=100_000, n=2, stream=True)
    ids: dict[int, str] = {}
    ends: dict[int, str] = {}
    goes_on = 0
    async for chunk in stream:
        (choice,) = chunk.choices
        if choice.delta.role:
            ids[choice.index] = chunk.parley["request_id"]
            if len(ids) == 2:
                await http.delete(f"/v1/requests/{ids[0]}")
        elif choice.finish_reason:
            ends[choice.index] = chunk.parley["finish_reason"]
        elif 0 in ends:
            goes_on += 1
            if goes_on == 3:
                await http.delete(f"/v1/requests/{ids[1]}")
    assert ends == {0: "cancelled", 1: "cancelled"}
    assert goes_on >= 3


ENDLESS: dict[str, dict[str, object]] = {
    "chat/completions": {"messages": HELLO, "max_tokens": 100_000},
    "completions": {"prompt": "hello", "max_tokens": 100_000},
    "responses": {"input": "hello", "max_output_tokens": 100_000},
}


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("route", ENDLESS)
async def test_a_client_that_leaves_stops_its_answer(gateway: GatewayProcess, route: str, stream: bool) -> None:
    user = f"leaver-{route[:4]}-{stream}"

    async def read() -> None:
        async with httpx.AsyncClient(base_url=f"{gateway.url}/v1", params={"user_id": user}, timeout=120) as http:
            await http.post(route, json={**ENDLESS[route], "stream": stream})

    async with Client(gateway.settings) as topics, asyncio.timeout(120):
        asking = asyncio.create_task(read())
        asked: list[ConsumerRecord] = []
        while not asked:
            asked = [one for one in await topics.records("requests") if one.key == user.encode()]
        request_id = json.loads(asked[0].value)["request_id"]
        await topics.begun(user, request_id)
        asking.cancel()
        end = (await topics.answer(user, request_id)).end
    assert end is not None
    assert end.finish_reason == "cancelled"


async def test_many_streams_at_once_keep_apart(client: AsyncOpenAI) -> None:
    async def one(number: int) -> str:
        stream = await client.chat.completions.create(
            model="demo", messages=[{"role": "user", "content": f"say {number}"}], max_tokens=6, stream=True, user="all"
        )
        return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])

    first = await asyncio.gather(*map(one, range(20)))
    assert len(set(first)) == 20
    assert await asyncio.gather(*map(one, range(20))) == first
