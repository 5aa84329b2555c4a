"""A client over HTTP: one request an answer, its events as lines of JSON."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self

import aiohttp
import msgspec

from tests.benchmarks.client import Client
from tests.benchmarks.load import Ask, Load, Reply


class HttpClient:
    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}/answers"
        self._client = Client(self._send)
        self._session: aiohttp.ClientSession | None = None
        self._reading: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=aiohttp.ClientTimeout())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        for task in self._reading:
            task.cancel()
        assert self._session is not None
        await self._session.close()

    async def run(self, load: Load) -> list[Reply]:
        return await self._client.run(load)

    async def _send(self, ask: Ask, _reply: Reply) -> None:
        task = asyncio.create_task(self._read(ask))
        self._reading.add(task)
        task.add_done_callback(self._reading.discard)

    async def _read(self, ask: Ask) -> None:
        assert self._session is not None
        try:
            async with self._session.post(self._url, data=msgspec.json.encode(ask)) as response:
                async for line in response.content:
                    event = msgspec.json.decode(line)
                    if event["type"] == "done":
                        await self._client.ended(ask.request_id)
                    else:
                        self._client.received(ask.request_id, len(event["tokens"]))
        except aiohttp.ClientError:
            await self._client.ended(ask.request_id, failed=True)
