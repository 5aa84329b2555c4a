"""Reading server-sent events, and what an answer of the `paced` engine must be."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import httpx


@dataclass(frozen=True)
class Sent:
    id: str | None
    event: dict[str, Any]

    @property
    def is_end(self) -> bool:
        return self.event["type"] in {"done", "error"}


async def read(client: httpx.AsyncClient, path: str, method: str = "GET", **options: Any) -> AsyncIterator[Sent]:
    """The events of a stream, up to where it closes."""
    async with client.stream(method, path, **options) as reply:
        assert reply.status_code == 200, (await reply.aread(), reply.status_code)
        assert reply.headers["content-type"].startswith("text/event-stream")
        async for sent in blocks(reply):
            yield sent


async def blocks(reply: httpx.Response) -> AsyncIterator[Sent]:
    block: dict[str, str] = {}
    async for line in reply.aiter_lines():
        if line:
            name, _, value = line.partition(":")
            block[name] = value.removeprefix(" ")
        else:
            if "data" in block:
                yield Sent(block.get("id"), json.loads(block["data"]))
            block = {}


async def answer(client: httpx.AsyncClient, request_id: str, **options: Any) -> list[Sent]:
    return [one async for one in read(client, f"/v1/requests/{request_id}/events", **options)]


def text_of(sent: list[Sent]) -> str:
    return "".join(one.event.get("text") or "" for one in sent if one.event["type"] != "notice")
