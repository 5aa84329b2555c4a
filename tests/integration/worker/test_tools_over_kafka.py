"""Tools that other programs run: calls on `tool-calls`, results on `tool-results`, and one answer around them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
from parley_client import tools as light
from parley_client.tools.serving import serve

from app.settings import Settings
from app.tools import Tools, current_call
from app.wire.codec import decode
from app.wire.tool_records import ToolCallRecord
from models.interface.generation import FinishReason
from models.served.paced import called, word
from tests.faults.load import TOOLS
from tests.faults.worker_process import WorkerProcess
from tests.integration.worker.client import PATIENCE_S, Client
from tests.integration.worker.conftest import StartWorker

KAFKA: dict[str, Any] = {"tools": TOOLS, "tool_mode": "kafka"}


async def calls_of(client: Client, user: str, count: int = 1) -> list[ToolCallRecord]:
    """The calls of the user on `tool-calls`, once there are so many."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            found = [
                decode(ToolCallRecord, record.value, record.headers) for record in await client.records("tool-calls")
            ]
            mine = [call for call in found if call.user_id == user]
            if len(mine) >= count:
                return mine
            await asyncio.sleep(0.05)


async def result(client: Client, call: ToolCallRecord, content: str, **fields: Any) -> tuple[int, int]:
    names = ("tool_call_id", "request_id", "user_id")
    record = {**{name: getattr(call, name) for name in names}, "content": content, **fields}
    return await client.send("tool-results", record, call.user_id)


def expected(prompt: str, results: list[str], rounds: list[int]) -> tuple[str, str]:
    """The text of an answer whose rounds have so many tokens, and the arguments of its last call."""
    texts: list[str] = []
    lines = ["", f"user: {prompt}"]
    arguments = ""
    for number, length in enumerate(rounds):
        ids = "\n".join(lines).encode()
        texts.append("".join(word(ids, index)[1] for index in range(length)))
        arguments = called(ids, length).arguments
        lines.append(f"assistant: {texts[-1]}")
        if number < len(results):
            lines.append(f"tool: {results[number]}")
    return "\n\n".join(texts), arguments


async def test_an_answer_goes_on_with_the_result_of_its_call(client: Client) -> None:
    user = client.user()
    request_id = await client.ask(user, "hello", max_tokens=2, **KAFKA)
    (call,) = await calls_of(client, user)
    assert (call.request_id, call.conversation_id, call.name) == (request_id, "default", "look_up")
    assert call.arguments == expected("hello", [], [1])[1]
    await result(client, call, "packed")
    _, second = await calls_of(client, user, 2)
    await result(client, second, "sent")
    answer = await client.answer(user, request_id)
    assert answer.text == expected("hello", ["packed", "sent"], [1, 1])[0]
    assert (answer.end.finish_reason, answer.end.tool_calls) == (FinishReason.LENGTH, None)
    assert answer.end.usage.completion_tokens == 2
    (turn,) = await client.turns_of(user, 1)
    assert turn.answer == answer.text
    assert [called.id for called in turn.tool_calls] == [call.tool_call_id, second.tool_call_id]
    later = await client.asked(user, "and now?", max_tokens=1)
    rounds = ["user: hello", f"assistant: {answer.text.split(chr(10))[0]}", "tool: packed"]
    assert later.end.usage.prompt_tokens > len("\n".join(["", *rounds]))


async def test_of_several_results_the_first_counts_and_late_ones_do_no_harm(client: Client) -> None:
    user = client.user()
    request_id = await client.ask(user, "hello", max_tokens=2, **KAFKA)
    (call,) = await calls_of(client, user)
    for content in ("one", "two", "three"):
        await result(client, call, content)
    _, second = await calls_of(client, user, 2)
    await result(client, second, "sent")
    answer = await client.answer(user, request_id)
    assert answer.text == expected("hello", ["one", "sent"], [1, 1])[0]
    await client.turns_of(user, 1)
    await result(client, call, "much later")
    assert (await client.asked(user, "next", max_tokens=1)).end.finish_reason is FinishReason.LENGTH


async def test_results_that_are_rubbish_too_large_or_of_no_call_are_dead_letters(client: Client) -> None:
    user = client.user()
    request_id = await client.ask(user, "hello", max_tokens=2, **KAFKA)
    (call,) = await calls_of(client, user)
    wrong = [
        await client.send("tool-results", b"{not json", user),
        await client.send("tool-results", {"tool_call_id": call.tool_call_id}, user),
        await result(client, call, "of another", tool_call_id="call_of_nobody"),
        await result(client, call, "of another", request_id="unheard-of"),
    ]
    large = await result(client, call, "x" * (client.settings.max_prompt_bytes + 1))
    codes = [dict((await client.dead_letter("tool-results", *at)).headers)["error-code"] for at in (*wrong, large)]
    assert codes == [b"invalid_request", b"invalid_request", b"not_found", b"not_found", b"prompt_too_long"]
    _, second = await calls_of(client, user, 2)
    await result(client, second, "sent")
    answer = await client.answer(user, request_id)
    limit = client.settings.max_prompt_bytes
    refusal = f"error: the tool's result has {limit + 1} bytes, the limit is {limit}"
    assert answer.text == expected("hello", [refusal, "sent"], [1, 1])[0]


@pytest.fixture(scope="module")
def narrow_worker(start_worker: StartWorker) -> WorkerProcess:
    return start_worker(max_in_flight=1, partitions=1)


async def test_waiting_answers_hold_no_slot_that_others_could_use(narrow_worker: WorkerProcess) -> None:
    async with Client(narrow_worker.settings) as client:
        waiting = [(user := client.user(), await client.ask(user, "hello", max_tokens=1, **KAFKA)) for _ in range(5)]
        for user, _ in waiting:
            await calls_of(client, user)
        await client.asked(client.user(), "hello", max_tokens=1)
        for user, request_id in waiting:
            await result(client, (await calls_of(client, user))[0], "done")
            assert (await client.answer(user, request_id)).end.finish_reason is FinishReason.LENGTH


@asynccontextmanager
async def running(tools: light.Tools, settings: Settings) -> AsyncIterator[None]:
    """By the settings, or by the light package alone."""
    if isinstance(tools, Tools):
        serving = asyncio.create_task(tools.serve(settings))
    else:
        options = settings.cluster.options()
        brokers = options.pop("bootstrap_servers")
        serving = asyncio.create_task(serve(tools.answer, brokers, "light", settings.topic_prefix, options))
    try:
        yield
    finally:
        serving.cancel()
        with suppress(asyncio.CancelledError):
            await serving


@pytest.mark.parametrize("kind", [Tools, light.Tools])
async def test_functions_answer_calls(client: Client, kind: type[light.Tools]) -> None:
    user, tools, asked = client.user(), kind(), list[str]()

    @tools.tool
    async def look_up(word: str) -> dict[str, str]:
        """What a word means."""
        if current_call.get().user_id == user:  # the topic has calls of other tests
            asked.append(word)
        if len(asked) == 2:
            raise ValueError("no such word")
        return {"meaning": "of" + word}

    async with running(tools, client.settings):
        answer = await client.asked(user, "hello", max_tokens=2, **KAFKA)
    results = ['{"meaning":"of' + asked[0] + '"}', "error: look_up failed"]
    assert answer.text == expected("hello", results, [1, 1])[0]
