"""`from` over HTTP and OpenAI's client: the gateway adds the ids of the beginning."""

from __future__ import annotations

import uuid
from typing import Any

import httpx
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
