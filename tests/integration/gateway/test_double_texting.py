"""What users of other chat services have reported of messages while an answer runs, on one worker and two gateways.

Each test says what the reporter saw; what it demands is what Parley does.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any

import httpx
import pytest

from app.features.tool_rounds import CANCELLED
from models.served.paced import word
from tests.faults.worker_process import WorkerProcess
from tests.integration.gateway.events import answer, read, text_of
from tests.integration.gateway.gateway_process import GatewayProcess
from tests.integration.worker.client import Client
from tests.integration.worker.test_tools_over_kafka import KAFKA, calls_of, result

ENDLESS = 100_000
TOOLS: dict[str, Any] = {**KAFKA, "tool_timeout_ms": 60_000}


def said(lines: list[str], count: int) -> str:
    """What the paced engine says to this history."""
    ids = "\n".join(["", *lines]).encode()
    return "".join(word(ids, index)[1] for index in range(count))


@dataclass(slots=True)
class Texter:
    """A user in one conversation, whose messages go through the two gateways in turns."""

    gateways: tuple[httpx.AsyncClient, httpx.AsyncClient]
    topics: Client
    user: str
    conversation: str
    sent: int = 0

    async def ask(self, prompt: str | None, **fields: Any) -> str:
        request_id = str(fields.pop("request_id", uuid.uuid4().hex))
        body = {"request_id": request_id, "conversation_id": self.conversation, **fields}
        body |= {} if prompt is None else {"prompt": prompt}
        self.sent += 1
        reply = await self.gateways[self.sent % 2].post("/v1/requests", json=body)
        assert reply.status_code == 202, reply.text
        return request_id

    async def begun(self, request_id: str, tokens: int = 3) -> None:
        async with aclosing(read(self.gateways[0], f"/v1/requests/{request_id}/events")) as events:
            async for one in events:
                if one.event["type"] == "token" and one.event["index"] + len(one.event["tokens"]) >= tokens:
                    return

    async def heard(self, request_id: str) -> tuple[str, str]:
        """The text and the reason of the end, of which both gateways say the same."""
        async with asyncio.timeout(120):
            each = [await answer(one, request_id) for one in self.gateways]
        one, other = ((text_of(sent), _reason_of(sent[-1].event)) for sent in each)
        assert one == other
        return one

    async def all_is_read(self) -> None:
        """Until the worker has read what was sent: it reads a user's requests in order, and answers a later one."""
        elsewhere = replace(self, conversation=uuid.uuid4().hex)
        await elsewhere.heard(await elsewhere.ask("and here?", max_tokens=1))

    async def turns(self, count: int) -> list[dict[str, Any]]:
        async with asyncio.timeout(120):
            while True:
                kept = await self.gateways[0].get(f"/v1/conversations/{self.conversation}")
                turns: list[dict[str, Any]] = kept.json().get("turns", [])
                if len(turns) >= count:
                    return turns
                await asyncio.sleep(0.05)

    async def give_results(self, first: int, count: int) -> None:
        """To the calls from that one on, once they are made."""
        for number in range(first, first + count):
            calls = await calls_of(self.topics, self.user, number + 1)
            await result(self.topics, calls[number], f"result {number}")


def _reason_of(end: dict[str, Any]) -> str:
    return str(end["error"]["code"] if end["type"] == "error" else end["finish_reason"])


@pytest.fixture(scope="module")
def other(worker: WorkerProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    with GatewayProcess(worker.settings, tmp_path_factory.mktemp("other") / "gateway.log") as gateway:
        yield gateway
        assert gateway.stop() == 0


@pytest.fixture
async def texter(gateway: GatewayProcess, other: GatewayProcess) -> AsyncIterator[Texter]:
    user = f"texter-{uuid.uuid4().hex[:8]}"
    async with (
        httpx.AsyncClient(base_url=gateway.url, params={"user_id": user}, timeout=60) as one,
        httpx.AsyncClient(base_url=other.url, params={"user_id": user}, timeout=60) as two,
        Client(gateway.settings) as topics,
    ):
        yield Texter((one, two), topics, user, uuid.uuid4().hex)


async def test_what_was_streamed_before_a_new_message_is_kept(texter: Texter) -> None:
    """langchain-ai/langgraph#5672: the server forgets what it streamed since its last checkpoint, and the new message
    is answered as if nobody had read that.
    """
    first = await texter.ask("hello", max_tokens=ENDLESS)
    await texter.begun(first, 5)
    second = await texter.ask("and?", max_tokens=4, while_busy="interrupt")
    text, reason = await texter.heard(first)
    assert reason == "cancelled"
    assert text == said(["user: hello"], text.count(" w"))
    assert await texter.heard(second) == (said(["user: hello", f"assistant: {text}", "user: and?"], 4), "length")
    assert (await texter.turns(2))[0]["answer"] == text


async def test_a_stop_in_the_first_moment_is_not_lost(texter: Texter) -> None:
    """ag-ui-protocol/ag-ui#2759, CopilotKit/CopilotKit#2711: a stop before the run is known stops nothing, and the
    abandoned reply lands behind a newer one.
    """
    stopped = []
    for number in range(12):
        request_id = uuid.uuid4().hex
        asks = texter.ask(f"question {number}", request_id=request_id, max_tokens=ENDLESS)
        if number % 3 == 0:  # the stop may be there first
            stops = texter.gateways[texter.sent % 2].delete(f"/v1/requests/{request_id}")
            await asyncio.gather(asks, stops)
            await texter.gateways[0].delete(f"/v1/requests/{request_id}")
        else:
            await asks
            await texter.gateways[number % 2].delete(f"/v1/requests/{request_id}")
        stopped.append(request_id)
    last = await texter.ask("and now?", max_tokens=2)
    assert [(await texter.heard(one))[1] for one in stopped] == ["cancelled"] * 12
    assert (await texter.heard(last))[1] == "length"
    assert [turn["request_id"] for turn in await texter.turns(13)] == [*stopped, last]


async def test_a_queued_message_skips_no_calls_and_one_that_steers_is_read_between_them(texter: Texter) -> None:
    """earendil-works/pi#403: what is called queued goes in between the calls, and the calls that are left are skipped.
    github/app#430: with a message queued, it is that one that is sent instead of the one that steers.
    """
    first = await texter.ask("hello", max_tokens=8, **TOOLS)
    await calls_of(texter.topics, texter.user)
    queued = await texter.ask("later", max_tokens=2)
    steers = await texter.ask("rather this", while_busy="steer", max_tokens=2)
    await texter.all_is_read()
    await texter.give_results(0, 4)
    text, reason = await texter.heard(first)
    assert (await texter.heard(steers)) == ("", "stop")
    assert (await texter.heard(queued))[1] == "length"
    calls = await calls_of(texter.topics, texter.user)
    assert reason == "length"
    assert len({call.tool_call_id for call in calls}) == 4
    rounds = text.split("\n\n")
    read_by_second = ["user: hello", f"assistant: {rounds[0]}", "tool: result 0", "user: rather this"]
    assert rounds[1] == said(read_by_second, rounds[1].count(" w"))
    turns = await texter.turns(3)
    assert [turn["request_id"] for turn in turns if turn["answer"]] == [first, queued]


async def test_three_messages_half_a_second_apart_leave_the_last_one(texter: Texter) -> None:
    """langchain-ai/langgraphjs#864: three runs with `rollback`, of which none is interrupted. #2755: a cancelled run
    goes on to its end on the server.
    """
    asked = []
    for prompt in ("one", "two", "three"):
        asked.append(await texter.ask(prompt, while_busy="rollback", max_tokens=4 if prompt == "three" else ENDLESS))
        await asyncio.sleep(0.5)
    heard = [await texter.heard(one) for one in asked]
    assert [reason for _, reason in heard] == ["cancelled", "cancelled", "length"]
    assert heard[2][0] == said(["user: three"], 4)
    assert [turn["prompt"] for turn in await texter.turns(1)] == ["three"]
    await asyncio.sleep(0.5)
    assert [await texter.heard(one) for one in asked] == heard
    for gateway in texter.gateways:  # who comes when all is over hears why, too
        notices = [one.event["notice"] for one in await answer(gateway, asked[0]) if one.event["type"] == "notice"]
        assert [(one["code"], one["details"]["by"]) for one in notices] == [("superseded", asked[1])]


async def test_a_message_while_a_tool_runs_leaves_no_call_without_result(texter: Texter) -> None:
    """aegra/aegra#191, anomalyco/opencode#3230: the call of the ended run stays without a result, and each later
    message of the conversation is refused by the model's server.
    """
    first = await texter.ask("hello", max_tokens=2, **TOOLS)
    (call,) = await calls_of(texter.topics, texter.user)
    second = await texter.ask("never mind", max_tokens=3, while_busy="interrupt")
    text, reason = await texter.heard(first)
    assert reason == "cancelled"
    await result(texter.topics, call, "too late")
    history = ["user: hello", f"assistant: {text}", f"tool: {CANCELLED}", "user: never mind"]
    answered, _ = await texter.heard(second)
    assert answered == said(history, 3)
    third = await texter.ask("and now?", max_tokens=2)
    assert await texter.heard(third) == (said([*history, f"assistant: {answered}", "user: and now?"], 2), "length")


async def test_a_message_at_the_moment_of_the_end_is_answered(texter: Texter) -> None:
    """vercel/chat#928: what comes between the last look at the queue and the release of its lock lies there until the
    next message.
    """
    asked = [await texter.ask("hello", max_tokens=6)]
    for number in range(12):
        await texter.begun(asked[-1], 6)
        await asyncio.sleep(0.004 * (number % 4))
        asked.append(await texter.ask(f"question {number}", max_tokens=6))
    assert [(await texter.heard(one))[1] for one in asked] == ["length"] * 13
    assert [turn["request_id"] for turn in await texter.turns(13)] == asked


@pytest.mark.parametrize("rounds", [4, 1])
async def test_a_later_message_does_not_overtake_one_that_steers(texter: Texter, rounds: int) -> None:
    """openclaw/openclaw#119794, NousResearch/hermes-agent#30384: a message waits to be steered, the run ends first, and
    a later one is answered before it.
    """
    first = await texter.ask("hello", max_tokens=8 if rounds > 1 else 1, **TOOLS)
    await calls_of(texter.topics, texter.user)
    if rounds == 1:  # the answer is over with its first call's result
        await texter.give_results(0, 1)
        await texter.heard(first)
    steers = await texter.ask("A", while_busy="steer", max_tokens=2)
    later = await texter.ask("B", max_tokens=2)
    if rounds > 1:
        await texter.all_is_read()
        await texter.give_results(0, rounds)
    assert [(await texter.heard(one))[1] for one in (first, steers, later)] == [
        "length",
        "stop" if rounds > 1 else "length",
        "length",
    ]
    turns = await texter.turns(3)
    assert [turn["request_id"] for turn in turns if turn["answer"]] == [
        first,
        *([] if rounds > 1 else [steers]),
        later,
    ]


async def test_a_message_that_is_delivered_again_is_neither_dropped_nor_answered_twice(texter: Texter) -> None:
    """openclaw/openclaw#103599: a message while a run is active is dropped, its channel delivers it again under its id,
    and it is dropped again.
    """
    first = await texter.ask("hello", max_tokens=30)
    await texter.begun(first)
    second = await texter.ask("and?", max_tokens=3)
    for _ in range(3):
        await texter.ask("and?", request_id=second, max_tokens=3)
    text, _ = await texter.heard(first)
    await texter.ask("and?", request_id=second, max_tokens=3)
    assert await texter.heard(second) == (said(["user: hello", f"assistant: {text}", "user: and?"], 3), "length")
    last = await texter.ask("and now?", max_tokens=1)
    await texter.heard(last)
    assert [turn["request_id"] for turn in await texter.turns(3)] == [first, second, last]


async def test_twenty_messages_while_a_tool_runs_are_all_answered_in_order(texter: Texter) -> None:
    """openclaw/openclaw#16771: twenty messages while tools run; beyond the cap of the queue one is dropped, and nobody
    is told.
    """
    first = await texter.ask("hello", max_tokens=1, **TOOLS)
    await calls_of(texter.topics, texter.user)
    asked = [await texter.ask(str(number), max_tokens=1) for number in range(1, 23)]
    await texter.give_results(0, 1)
    assert [(await texter.heard(one))[1] for one in (first, *asked)] == ["length"] * 23
    assert [turn["request_id"] for turn in await texter.turns(23)] == [first, *asked]


async def test_a_fork_runs_nothing_of_its_source_again(texter: Texter) -> None:
    """langchain-ai/langgraph#8458: going on from a point runs all steps before it again. #4987: the source does not go
    on behind its own end afterwards.
    """
    source = texter.conversation
    first = await texter.ask("hello", max_tokens=2, **TOOLS)
    await texter.give_results(0, 2)
    await texter.heard(first)
    second = await texter.ask("and?", max_tokens=6)
    text, _ = await texter.heard(second)
    texter.conversation = uuid.uuid4().hex
    begin = {"conversation_id": source, "request_id": second, "index": 4}
    fork = await texter.ask(None, max_tokens=6, **{"from": begin})
    assert await texter.heard(fork) == (text, "length")
    assert len(await calls_of(texter.topics, texter.user)) == 2
    texter.conversation = source
    third = await texter.ask("more", max_tokens=1)
    await texter.heard(third)
    assert [turn["request_id"] for turn in await texter.turns(3)] == [first, second, third]
