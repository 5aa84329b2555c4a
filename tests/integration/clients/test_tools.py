"""Tools: the demo model calls its own, and any other where it must."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest
from openai import AsyncOpenAI

from app.demo.order_tool import tools
from tests.faults.worker_process import WorkerProcess
from tests.integration.clients.conftest import ASKED, HELLO, TOOL
from tests.integration.worker.client import Client


async def test_the_demo_model_calls_its_tool_and_passes_the_result_on(client: AsyncOpenAI) -> None:
    first = await client.chat.completions.create(model="demo", messages=ASKED, tools=[TOOL])
    choice = first.choices[0]
    assert (choice.finish_reason, choice.message.content) == ("tool_calls", None)
    (call,) = choice.message.tool_calls
    assert (call.function.name, json.loads(call.function.arguments)) == ("order_status", {"order_number": "48213"})
    result = {"role": "tool", "tool_call_id": call.id, "content": '{"status": "packed", "arrives": "Friday"}'}
    second = await client.chat.completions.create(
        model="demo", messages=[*ASKED, choice.message.model_dump(exclude_none=True), result], tools=[TOOL]
    )
    assert second.choices[0].finish_reason == "stop"
    assert "packed" in second.choices[0].message.content
    assert "Friday" in second.choices[0].message.content


async def test_calls_are_streamed_as_the_client_joins_them(client: AsyncOpenAI) -> None:
    async with client.chat.completions.stream(model="demo", messages=ASKED, tools=[TOOL], seed=1) as stream:
        kinds = [event.type async for event in stream]
        streamed = (await stream.get_final_completion()).choices[0].message.tool_calls[0]
    assert kinds.count("tool_calls.function.arguments.delta") > 1
    assert json.loads(streamed.function.arguments) == {"order_number": "48213"}


async def test_without_a_reason_to_call_a_tool_the_answer_is_text(client: AsyncOpenAI) -> None:
    done = await client.chat.completions.create(
        model="demo", messages=[{"role": "user", "content": "What are your opening hours?"}], tools=[TOOL]
    )
    assert done.choices[0].message.tool_calls is None
    assert "8 am" in done.choices[0].message.content


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "weather"}}])
async def test_a_demanded_call_of_any_tool_conforms_to_its_schema(client: AsyncOpenAI, choice: object) -> None:
    parameters = {
        "type": "object",
        "properties": {"city": {"enum": ["Rome", "Oslo"]}, "days": {"type": "integer", "minimum": 1, "maximum": 5}},
        "required": ["city", "days"],
    }
    weather = {"type": "function", "function": {"name": "weather", "parameters": parameters}}
    tools = [weather] if choice == "required" else [TOOL, weather]
    done = await client.chat.completions.create(
        model="demo", messages=HELLO, tools=tools, tool_choice=choice, parallel_tool_calls=False
    )
    (call,) = done.choices[0].message.tool_calls
    assert call.function.name == "weather"
    given = json.loads(call.function.arguments)
    assert given["city"] in {"Rome", "Oslo"}
    assert 1 <= given["days"] <= 5


async def test_tool_choice_none_calls_none(client: AsyncOpenAI) -> None:
    done = await client.chat.completions.create(model="demo", messages=ASKED, tools=[TOOL], tool_choice="none")
    assert done.choices[0].message.tool_calls is None
    assert "48213" in done.choices[0].message.content


async def test_a_conversation_on_kafka_remembers_calls_and_takes_their_results(worker: WorkerProcess) -> None:
    async with Client(worker.settings) as client:
        user = "kate"
        asked = await client.asked(user, "Where is my order 48213?", tools=[TOOL])
        assert (asked.end.finish_reason, asked.text) == ("tool_calls", "")
        (call,) = asked.end.tool_calls
        assert json.loads(call.arguments) == {"order_number": "48213"}
        parts = [delta for event in asked.segments for delta in event.tool_call_deltas or ()]
        assert {delta.id for delta in parts if delta.id} == {call.id}
        assert "".join(delta.arguments for delta in parts) == call.arguments
        result = {"tool_call_id": call.id, "content": '{"status": "shipped", "arrives": "Monday"}'}
        answer = await client.asked(user, None, tools=[TOOL], tool_results=[result])
        assert "shipped" in answer.text
        again = await client.asked(user, None, tool_results=[result])
        assert (again.end.error.code, "no open call" in again.end.error.message) == ("invalid_request", True)
        later = await client.asked(user, "What was my order number?", tools=[TOOL])
        assert "48213" in later.text
        first, second, _ = await client.turns_of(user, 3)
        assert first.tool_calls == asked.end.tool_calls
        assert (second.prompt, second.answer) == (first.prompt, answer.text)


@pytest.fixture
async def order_program(worker: WorkerProcess) -> AsyncIterator[None]:
    serving = asyncio.create_task(tools.serve(worker.settings))
    yield
    serving.cancel()
    with suppress(asyncio.CancelledError):
        await serving


@pytest.mark.usefixtures("order_program")
async def test_a_program_on_kafka_runs_the_tools_and_the_client_reads_one_answer(client: AsyncOpenAI) -> None:
    given = {"model": "demo", "messages": ASKED, "tools": tools.definitions, "extra_body": {"tool_mode": "kafka"}}
    done = await client.chat.completions.create(**given)
    assert (done.choices[0].finish_reason, done.choices[0].message.tool_calls) == ("stop", None)
    assert any(status in done.choices[0].message.content for status in ("packed", "shipped", "way", "waiting"))
    chunks = [chunk async for chunk in await client.chat.completions.create(**given, stream=True)]
    deltas = [chunk.choices[0].delta for chunk in chunks if chunk.choices]
    assert all(delta.tool_calls is None for delta in deltas)
    assert "".join(delta.content or "" for delta in deltas) == done.choices[0].message.content
    response = await client.responses.create(
        model="demo",
        input="Where is my order 48213?",
        tools=[{"type": "function", **tools.definitions[0]["function"], "strict": True}],
        extra_body={"tool_mode": "kafka"},
    )
    assert [item.type for item in response.output] == ["message"]


async def test_the_example_of_a_tool_prints_the_call_and_the_answer(worker: WorkerProcess) -> None:
    settings = worker.settings
    names = ("broker", "topic_prefix", "partitions")
    environment = {f"PARLEY_{name.upper()}": str(getattr(settings, name)) for name in names}
    root = Path(__file__).parents[3]
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "app.demo.order_tool",
        "Where is my order 48213?",
        cwd=root,
        env={**os.environ, **environment, "PYTHONPATH": str(root)},
        stdout=PIPE,
        stderr=PIPE,
    )
    out, err = await asyncio.wait_for(process.communicate(), 240)
    lines = out.decode().splitlines()
    # The program also answers the calls that other tests left on the topic, and prints those too.
    assert "[ann asks for order 48213]" in lines, (lines, err.decode())
    assert any("Thursday" in line for line in lines)
    assert lines[-1] == "[stop]"
