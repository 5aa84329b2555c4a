"""`from` over HTTP and OpenAI's client: the gateway adds the ids of the beginning."""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from openai import AsyncOpenAI

from tests.integration.gateway.gateway_process import GatewayProcess


async def tokens_of(client: httpx.AsyncClient, request_id: str) -> list[int]:
    response = await client.get(f"/v1/requests/{request_id}/events")
    lines = [line[6:] for line in response.text.splitlines() if line.startswith("data: {")]
    events: list[dict[str, Any]] = [httpx.Response(200, text=line).json() for line in lines]
    assert events[-1]["type"] == "done", events[-1]
    return [token for event in events for token in event.get("tokens") or ()]


async def test_an_answer_forks_at_a_token(gateway: GatewayProcess) -> None:
    first, second, source, copy = (uuid.uuid4().hex for _ in range(4))
    async with httpx.AsyncClient(base_url=gateway.url, params={"user_id": "fay"}, timeout=60) as client:
        asked = {"request_id": first, "conversation_id": source, "prompt": "hello", "max_tokens": 8}
        (await client.post("/v1/requests", json=asked)).raise_for_status()
        tokens = await tokens_of(client, first)
        begin = {"conversation_id": source, "request_id": first, "index": 5}
        fork = {"request_id": second, "conversation_id": copy, "from": begin, "max_tokens": 8}
        (await client.post("/v1/requests", json=fork)).raise_for_status()
        assert await tokens_of(client, second) == tokens
        beyond = await client.post("/v1/requests", json={**fork, "request_id": "x", "from": {**begin, "index": 50}})
        assert beyond.status_code == 400
        assert beyond.json()["error"]["param"] == "from.index"
    async with AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key="any") as openai:
        again = await openai.chat.completions.create(
            model="demo",
            user="fay",
            messages=[{"role": "user", "content": "and now?"}],
            max_tokens=3,
            extra_body={"conversation_id": uuid.uuid4().hex, "from": {**begin, "index": None}},
        )
        assert again.choices[0].finish_reason == "length"


@dataclass(frozen=True, slots=True)
class Said:
    request_id: str
    read: int
    """Tokens of its prompt."""
    messages: list[Any]


async def by_chat(openai: AsyncOpenAI, text: str, conversation: str, before: Said | None, **own: Any) -> Said:
    """The client brings the history, unless the request begins as a copy."""
    history = [] if before is None or "from" in own else before.messages
    messages = [*history, {"role": "user", "content": text}] if text else []
    body = {**own, "conversation_id": conversation}
    done = await openai.chat.completions.create(
        model="demo", user="fred", messages=messages, max_tokens=4, extra_body=body
    )
    assert done.usage is not None
    answer = {"role": "assistant", "content": done.choices[0].message.content}
    return Said(str(done._request_id), done.usage.prompt_tokens, [*messages, answer])


async def by_responses(openai: AsyncOpenAI, text: str, conversation: str, _before: Said | None, **own: Any) -> Said:
    done = await openai.responses.create(
        model="demo", user="fred", input=text or [], max_output_tokens=4, conversation=conversation, extra_body=own
    )
    assert done.usage is not None
    return Said(str(done._request_id), done.usage.input_tokens, [])


@pytest.mark.parametrize("ask", [by_chat, by_responses])
async def test_a_turn_is_edited_and_asked_again_by_openais_client(
    ask: Callable[..., Awaitable[Said]], gateway: GatewayProcess
) -> None:
    source, edited, again = (uuid.uuid4().hex for _ in range(3))

    def instead(of: Said, conversation: str) -> dict[str, Any]:
        begin = {"conversation_id": conversation, "request_id": of.request_id, "index": 0}
        return {"from": begin, "replaces": [of.request_id]}

    async with AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key="any") as openai:
        first = await ask(openai, "one", source, None)
        second = await ask(openai, "two", source, first)
        edit = await ask(openai, "two!", edited, second, **instead(second, source))
        assert edit.read == second.read + 1, "it has read what the second one had, and one more character"
        other = await ask(openai, "", again, edit, **instead(edit, edited))
        assert other.read == edit.read
        await ask(openai, "three", again, other)
    async with httpx.AsyncClient(base_url=gateway.url, params={"user_id": "fred"}, timeout=60) as client:
        kept = {name: (await client.get(f"/v1/conversations/{name}")).json() for name in (source, edited, again)}
    prompts = {name: [turn["prompt"] for turn in one["turns"]] for name, one in kept.items()}
    assert prompts == {source: ["one", "two"], edited: ["two!"], again: ["two!", "three"]}
    replaced = [one["turns"][0]["replaces"] for one in (kept[edited], kept[again])]
    assert replaced == [[second.request_id], [edit.request_id]]
    assert [one["turns"][0]["request_id"] for one in kept.values()] == [
        first.request_id,
        edit.request_id,
        other.request_id,
    ]
