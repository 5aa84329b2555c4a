"""A moderation server that flags words of the paced engine, takes its time, and fails at times."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web

from tests.faults.moderation_verdict import BANNED

_POLICY = """
[guard]
answer = {{ banned = "block" }}
moderation = {{ url = "http://127.0.0.1:{port}/v1" }}
"""
_SLOWEST_S = 0.1
_FAILURES = 0.02


@asynccontextmanager
async def moderation_policy(seed: int = 7) -> AsyncIterator[str]:
    """The text of a policy file by which such a server judges the answers."""
    chance = random.Random(seed)

    async def moderate(request: web.Request) -> web.Response:
        texts = (await request.json())["input"]
        await asyncio.sleep(_SLOWEST_S * chance.random())
        if chance.random() < _FAILURES:
            raise web.HTTPBadRequest
        flags = [BANNED.search(text) is not None for text in texts]
        results = [
            {"flagged": flag, "categories": {"banned": flag}, "category_scores": {"banned": float(flag)}}
            for flag in flags
        ]
        return web.json_response({"id": "m", "model": "m", "results": results})

    app = web.Application()
    app.router.add_post("/v1/moderations", moderate)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield _POLICY.format(port=runner.addresses[0][1])
    finally:
        await runner.cleanup()
