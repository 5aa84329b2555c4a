"""The floor: the engine called in its own process, the load generator beside it. No Kafka, no HTTP, nothing kept.

A load as JSON on each line of stdin; its replies as JSON on one line of stdout.
"""

from __future__ import annotations

import asyncio
import sys

import msgspec

from tests.benchmarks.client import Client
from tests.benchmarks.load import Ask, Load, Reply
from tests.benchmarks.peers.engine import open_engine
from tests.benchmarks.peers.pinning import name_engine


async def serve() -> None:
    engine = await open_engine()
    answering: set[asyncio.Task[None]] = set()

    async def answer(ask: Ask) -> None:
        async for tokens, _ in engine.answer(ask):
            client.received(ask.request_id, len(tokens))
        await client.ended(ask.request_id)

    async def send(ask: Ask, _reply: Reply) -> None:
        task = asyncio.create_task(answer(ask))
        answering.add(task)
        task.add_done_callback(answering.discard)

    client = Client(send)
    print("ready", flush=True)
    while line := await asyncio.to_thread(sys.stdin.buffer.readline):
        replies = await client.run(msgspec.json.decode(line, type=Load))
        print(msgspec.json.encode(replies).decode(), flush=True)
    await engine.stop()


if __name__ == "__main__":
    name_engine()
    asyncio.run(serve())
