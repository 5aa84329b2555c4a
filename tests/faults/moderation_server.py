"""Servers with OpenAI's moderation API, among them one that flags words of the paced engine."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from tests.faults.moderation_verdict import BANNED

_POLICY = """
[guard]
answer = {{ banned = "block" }}
moderation = {{ url = "{url}" }}
"""
_SLOWEST_S = 0.1
_FAILURES = 0.02


Answer = Callable[[list[str]], Awaitable[Any]]
"""The reply to these texts: a response, or what it has as JSON."""


@asynccontextmanager
async def moderation_server(answer: Answer) -> AsyncIterator[str]:
    """The URL of such a server on this machine."""

    async def moderate(request: web.Request) -> web.Response:
        found = await answer((await request.json())["input"])
        return found if isinstance(found, web.Response) else web.json_response(found)

    app = web.Application()
    app.router.add_post("/v1/moderations", moderate)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def moderation_policy(seed: int = 7) -> AsyncIterator[str]:
    """The text of a policy file by which a server judges the answers that takes its time, and fails at times."""
    chance = random.Random(seed)

    async def judge(texts: list[str]) -> Any:
        await asyncio.sleep(_SLOWEST_S * chance.random())
        if chance.random() < _FAILURES:
            raise web.HTTPBadRequest
        flags = [BANNED.search(text) is not None for text in texts]
        results = [
            {"flagged": flag, "categories": {"banned": flag}, "category_scores": {"banned": float(flag)}}
            for flag in flags
        ]
        return {"id": "m", "model": "m", "results": results}

    async with moderation_server(judge) as url:
        yield _POLICY.format(url=url)
