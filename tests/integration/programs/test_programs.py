"""Other people's programs, whole: what each sends as it always did, and what comes back.

A stream job with a request topic and a response topic, a page that reads tokens by kafkajs, a chat service with user
queries, a support desk behind moderation, pages for a chat that is one GET or one POST, and an agent with an MCP
server.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from asyncio.subprocess import PIPE
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from mcp import Client as McpClient
from mcp import StdioServerParameters

from tests.integration.npm import NODE, NPM, installed
from tests.integration.programs.conftest import Place
from tests.integration.worker.client import PATIENCE_S, Client

DEPLOY = Path(__file__).parents[3] / "deploy"
NPM_PROGRAMS = Path(__file__).parent / "npm"
needs_node = pytest.mark.skipif(NODE is None or NPM is None, reason="node is not installed: its programs were not run")


async def produce(place: Place, topic: str, *values: dict[str, Any]) -> None:
    """With no key, as these programs do."""
    producer = AIOKafkaProducer(
        bootstrap_servers=place.kafka, value_serializer=lambda value: json.dumps(value).encode("utf-8")
    )
    await producer.start()
    try:
        for value in values:
            await producer.send_and_wait(place.topic(topic), value)
    finally:
        await producer.stop()


async def consume(place: Place, topic: str, wanted: int) -> list[dict[str, Any]]:
    consumer = AIOKafkaConsumer(
        place.topic(topic),
        bootstrap_servers=place.kafka,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        value_deserializer=json.loads,
    )
    await consumer.start()
    found: list[dict[str, Any]] = []
    try:
        async with asyncio.timeout(PATIENCE_S):
            while len(found) < wanted:
                found.append((await consumer.getone()).value)
    finally:
        await consumer.stop()
    return found


async def node(place: Place, program: str, *arguments: str, **environment: str) -> Any:
    """What the program has printed, as JSON."""
    await asyncio.to_thread(installed, NPM_PROGRAMS)
    process = await asyncio.create_subprocess_exec(
        str(NODE),
        str(NPM_PROGRAMS / program),
        *arguments,
        env=os.environ | {"KAFKA": place.kafka, "API": f"{place.gateway.url}/v1", **environment},
        stdout=PIPE,
        stderr=PIPE,
    )
    out, err = await asyncio.wait_for(process.communicate(), PATIENCE_S)
    assert process.returncode == 0, err.decode()
    return json.loads(out)


async def test_a_stream_job_gets_one_response_for_each_request(place: Place, client: Client) -> None:
    asked = {f"abc{number}": f"Explain {number}." for number in range(20)}
    sent = [{"request_id": name, "prompt": text, "timestamp": time.time()} for name, text in asked.items()]
    await produce(place, "llm-requests", *sent, {"request_id": "odd", "text": "?", "timestamp": "now"})
    responses = {one["request_id"]: one for one in await consume(place, "llm-responses", len(asked) + 1)}
    odd = "the record has no `prompt` (prompt); it has `request_id`, `text` and `timestamp`"
    assert responses.pop("odd") == {"request_id": "odd", "response": None, "error": odd, "sent": "now"}
    answers = {name: (await client.answer(name, name)).text for name in asked}
    times = {one["request_id"]: one["timestamp"] for one in sent}
    assert responses == {
        name: {"request_id": name, "response": answers[name], "error": None, "sent": times[name]} for name in asked
    }


@needs_node
async def test_a_page_with_kafkajs_puts_each_token_where_its_index_says(place: Place, client: Client) -> None:
    drawn = await node(place, "page_over_kafka.mjs", ASKS=place.topic("requests"), TOKENS=place.topic("tokens"))
    assert drawn == {name: (await client.answer(name, name)).text for name in ("1", "2")}
    assert len((await client.answer("2", "2")).tokens) == 24


async def test_a_chat_service_gets_prompt_and_completion_and_its_users_are_remembered(
    place: Place, client: Client
) -> None:
    await produce(place, "user-queries", {"userId": "123", "text": "Hi", "timestamp": "2024-01-01"})
    (first,) = await consume(place, "chat-responses", 1)
    await produce(place, "user-queries", {"userId": "123", "text": "And then?"})
    (_, second) = await consume(place, "chat-responses", 2)
    turns = await client.turns_of("123", 2)
    for response, turn, time_sent in zip((first, second), turns, ("2024-01-01", None), strict=True):
        wanted = {"userId": "123", "prompt": turn.prompt, "completion": turn.answer, "timestamp": time_sent}
        assert response == wanted
    assert turns[1].usage.prompt_tokens > turns[0].usage.prompt_tokens, "the second one sees the first"


async def test_a_support_desk_gets_answers_and_what_moderation_stopped(place: Place) -> None:
    await produce(
        place,
        "cs-queries",
        {"userId": "7", "text": "Where is my parcel?"},
        {"userId": "8", "text": "Where is my fucking parcel?"},
    )
    responses = {one["userId"]: one for one in await consume(place, "cs-responses", 2)}
    assert responses["7"]["completion"]
    assert (responses["7"]["prompt"], responses["7"]["ended"]) == ("Where is my parcel?", "length")
    assert (responses["8"]["completion"], responses["8"]["ended"]) == ("", "filtered")


async def test_log_lines_of_nobody_are_prompts_of_two_fields(place: Place) -> None:
    await produce(place, "system-logs", {"event": "disk", "query": 90}, {"event": "disk"}, {"query": None})
    notes = await consume(place, "log-notes", 3)
    lacking = "the record has no `query` (prompt); it has `event`"
    empty = "`query` (prompt) is null; the record has no `event` (prompt); it has `query`"
    assert {(one["prompt"], one["event"], one["error"]) for one in notes} == {
        ("disk: 90", "disk", None),
        (None, "disk", lacking),
        (None, None, empty),
    }


@needs_node
@pytest.mark.parametrize("program", ["event_source.mjs", "posted_stream.mjs"])
async def test_a_page_whose_chat_is_one_call_reads_the_answer(place: Place, client: Client, program: str) -> None:
    prompt = f"Why is the sky blue, {program}?"
    shown = await node(place, program, prompt)
    turns: dict[str, str] = {}
    async with asyncio.timeout(PATIENCE_S):
        while prompt not in turns:
            turns = {turn.prompt: turn.answer for turn in await client.turns("dev")}
    assert shown == {"text": turns[prompt]}


async def test_an_agent_asks_by_an_mcp_server_and_a_repeated_call_is_asked_once(place: Place, client: Client) -> None:
    server = StdioServerParameters(
        command=sys.executable,
        args=[str(DEPLOY / "examples" / "mcp_server.py")],
        env={
            "PARLEY_URL": place.gateway.url,
            "PARLEY_USER": "agent-7",
            "PYTHONPATH": str(DEPLOY / "packages" / "python"),
        },
    )
    call = {"prompt": "What is new?", "conversation": "desk", "request_id": "call-1"}
    async with McpClient(server) as agent:
        assert {tool.name for tool in (await agent.list_tools()).tools} == {"ask", "search"}
        replies = [await agent.call_tool("ask", call) for _ in range(2)]
    texts = [block.text for reply in replies for block in reply.content if block.type == "text"]
    (turn,) = await client.turns_of("agent-7", 1)
    assert (turn.request_id, turn.conversation_id) == ("call-1", "desk")
    assert texts == [turn.answer] * 2
