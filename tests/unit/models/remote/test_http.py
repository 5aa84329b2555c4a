"""The client for outside servers reads by aiohttp, in this process's versions of openai and in older ones."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, NoReturn

import openai
import pytest

from app.local.ports import free_port
from models.interface.generation import Failure, FinishReason, Job, Sampling
from models.remote import RemoteEngine, RemoteOptions, RemotePrompts, http
from models.remote.http import client_of
from tests.unit.models.engine.reading import Answer, read
from tests.unit.models.remote.outside import WORDS, OutsideServer, outside_server

PROMPT = RemotePrompts(10, 1 << 19).build("", [], "hello").ids


@pytest.fixture
async def server() -> AsyncIterator[OutsideServer]:
    async with outside_server() as one:
        yield one


async def ask(url: str) -> Answer:
    engine = RemoteEngine(RemoteOptions("outside", "chatty", (url,), connect_s=5.0, patience_s=1.0))
    try:
        (stream,) = engine.submit([Job("r", PROMPT, 8, sampling=Sampling(temperature=0))])
        return await read(stream, is_counted=False)
    finally:
        await engine.stop()


async def test_streams_are_read_by_aiohttp_alone(server: OutsideServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its parser is compiled; httpx's is not, and took half of the processor time of an answer."""

    def refuse(*_: Any) -> NoReturn:
        raise AssertionError("h11 is asked")

    monkeypatch.setattr("h11.Connection.next_event", refuse)
    answer = await ask(server.url)
    assert answer.text == "".join(WORDS[:8])


async def test_a_version_of_openai_that_cannot_use_aiohttp_reads_by_httpx(
    server: OutsideServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(**_: Any) -> NoReturn:
        raise RuntimeError("To use the aiohttp client you must have installed the package with the `aiohttp` extra")

    monkeypatch.setattr(openai, "DefaultAioHttpClient", missing)
    assert isinstance(client_of(1.0), openai.DefaultAsyncHttpxClient)
    answer = await ask(server.url)
    assert answer.text == "".join(WORDS[:8])
    assert answer.end.reason is FinishReason.LENGTH


async def test_a_refused_connection_is_named(caplog: pytest.LogCaptureFixture) -> None:
    answer = await ask(f"http://127.0.0.1:{free_port()}/v1")
    assert isinstance(answer.end, Failure)
    assert "ConnectionRefusedError" in caplog.text


async def test_a_server_that_writes_faster_than_is_read_leaves_turns_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "_TURN_S", 0.0)
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def written() -> AsyncIterator[bytes]:
        for _ in range(200):
            yield b"data: {}\n\n"

    other = asyncio.create_task(others())
    parts = [part async for part in http._Bounded(written(), is_stream=True)]
    other.cancel()
    assert len(parts) == 200
    assert turns > 100
