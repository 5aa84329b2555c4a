"""What many would write: FastAPI in front of the same engine, tokens streamed in the response.

What it lacks: a client that disconnects loses the answer, a restart loses all of them, nothing is kept in
order, nothing is remembered.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import msgspec
import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import StreamingResponse

from app.local.ports import free_port
from tests.benchmarks.load import Ask
from tests.benchmarks.peers.engine import BareEngine, open_engine
from tests.benchmarks.peers.lifetime import end_with_parent
from tests.benchmarks.peers.pinning import name_engine


def create(engine: BareEngine) -> FastAPI:
    api = FastAPI()

    @api.post("/answers")
    async def answer(request: Request) -> StreamingResponse:
        ask = msgspec.json.decode(await request.body(), type=Ask)

        async def lines() -> AsyncIterator[bytes]:
            async for tokens, text in engine.answer(ask):
                yield msgspec.json.encode({"type": "token", "tokens": tokens, "text": text}) + b"\n"
            yield b'{"type":"done"}\n'

        return StreamingResponse(lines(), media_type="application/x-ndjson")

    return api


async def main() -> None:
    engine = await open_engine()
    port = free_port()
    server = uvicorn.Server(uvicorn.Config(create(engine), port=port, log_level="warning", access_log=False))
    serving = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.05)
    print("ready", flush=True)
    print(port, flush=True)
    await serving


if __name__ == "__main__":
    end_with_parent()
    name_engine()
    asyncio.run(main())
