"""Outside servers that mean harm: they send elsewhere, never end, flood, or give secrets away in their errors."""

from __future__ import annotations

import asyncio
import gzip
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, nullcontext
from typing import Any

import pytest
from aiohttp import web

from app.features.guard.judges.judge import JudgeError
from app.features.guard.judges.plugged import PluggedJudge
from models.interface.generation import Delta, End, Failure, FinishReason, Job, Sampling, weight
from models.interface.token_stream import TokenStream
from models.remote import RemoteEngine, RemoteOptions, RemotePrompts
from models.remote.engine import MOST_WAITING
from models.remote.http import MOST_BYTES
from tests.unit.models.engine.reading import Answer, read

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
SECRET = "sk-secret-of-the-operator"
PROMPTS = RemotePrompts(10, 1 << 19)


@asynccontextmanager
async def serving(handler: Handler) -> AsyncIterator[str]:
    """The URL of a server with one handler for all."""
    app = web.Application(client_max_size=1 << 24)
    app.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def engine_of(*urls: str, **options: Any) -> AsyncIterator[RemoteEngine]:
    given = {"silence_s": 60.0, "connect_s": 5.0, "patience_s": 0.2, "is_vllm": True, **options}
    engine = RemoteEngine(RemoteOptions("outside", "chatty", urls, **given))
    try:
        yield engine
    finally:
        await engine.stop()


def job(max_tokens: int = 16) -> Job:
    prompt = PROMPTS.build("", [], "a private question").ids
    return Job("r", prompt, max_tokens, sampling=Sampling(temperature=0))


async def ask(engine: RemoteEngine, asked: Job | None = None) -> Answer:
    (stream,) = engine.submit([asked or job()])
    return await asyncio.wait_for(read(stream, is_counted=False), 60)


def chunk(text: str, **fields: Any) -> bytes:
    choice = {"index": 0, "finish_reason": None, "delta": {"content": text}, **fields}
    return (
        b"data: " + json.dumps({"id": "c", "object": "chat.completion.chunk", "choices": [choice]}).encode() + b"\n\n"
    )


def streaming(parts: Callable[[], AsyncIterator[bytes]]) -> Handler:
    async def handle(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        async for part in parts():
            await response.write(part)
        return response

    return handle


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_takes_no_prompt_elsewhere(status: int) -> None:
    asked: list[bytes] = []

    async def other(request: web.Request) -> web.StreamResponse:
        asked.append(await request.read())
        return web.json_response({})

    async with serving(other) as elsewhere:

        async def redirect(_request: web.Request) -> web.StreamResponse:
            return web.Response(status=status, headers={"Location": f"{elsewhere}/chat/completions"})

        async with serving(redirect) as url, engine_of(url) as engine:
            answer = await ask(engine)
            assert isinstance(answer.end, Failure)
            assert elsewhere not in answer.end.message
            judge = PluggedJudge("moderation", {"server": {"url": url}, "timeout_s": 60.0, "categories": ["hate"]})
            with pytest.raises(JudgeError, match=f"status {status}"):
                await judge.scores(["a private text"], nullcontext)
            await judge.close()
    assert asked == []


@pytest.mark.parametrize("empty", [chunk(""), b": still there\n\n", chunk("", delta={"role": "assistant"})])
async def test_chunks_without_text_do_not_break_the_silence(empty: bytes) -> None:
    async def drip() -> AsyncIterator[bytes]:
        while True:
            yield empty
            await asyncio.sleep(0.02)

    async with serving(streaming(drip)) as url, engine_of(url, silence_s=0.5) as engine:
        answer = await ask(engine)
    assert isinstance(answer.end, Failure)
    assert answer.text == ""


async def test_a_drip_of_text_ends_with_the_time_of_a_whole_answer() -> None:
    async def drip() -> AsyncIterator[bytes]:
        while True:
            yield chunk("x")
            await asyncio.sleep(0.02)

    for longest_s in (0.5, 5.0, 50.0):  # the next one, if a busy machine has not read a word within it
        async with (
            serving(streaming(drip)) as url,
            engine_of(url, longest_s=longest_s, is_vllm=False) as engine,
        ):
            answer = await ask(engine, job(1 << 18))
        if answer.text:
            break
    assert answer.reason is FinishReason.PARTIAL
    assert answer.text


async def test_a_flood_is_cut_where_no_asked_token_can_be() -> None:
    async def flood() -> AsyncIterator[bytes]:
        while True:
            yield chunk("x" * 1000)

    async with serving(streaming(flood)) as url, engine_of(url) as engine:
        answer = await ask(engine, job(16))
    assert answer.reason is FinishReason.LENGTH
    assert len(answer.text) < 10_000


async def test_a_server_that_is_faster_than_the_reader_waits_for_it() -> None:
    sent = 0

    async def flood() -> AsyncIterator[bytes]:
        nonlocal sent
        while True:
            yield chunk("x" * 1000)
            sent += 1000

    async with serving(streaming(flood)) as url, engine_of(url, silence_s=30.0) as engine:
        (stream,) = engine.submit([job(1 << 18)])
        assert isinstance(stream, TokenStream)
        before = -1
        while sent != before:  # the socket's buffers fill up, and nothing more
            before = sent
            await asyncio.sleep(0.5)
        assert stream._weight < 2 * MOST_WAITING
        count = 0
        async for event in stream:
            assert isinstance(event, Delta)
            assert weight(event) <= 1 << 18
            count += len(event.text)
            if count > before:
                break
        stream.cancel()
        rest = [event async for event in stream]
    assert isinstance(rest[-1], End)


async def test_one_enormous_chunk_of_text_arrives_in_pieces() -> None:
    async def one() -> AsyncIterator[bytes]:
        yield chunk("ä😀" * 50_000)
        yield chunk("", finish_reason="stop")
        yield b"data: [DONE]\n\n"

    async with serving(streaming(one)) as url, engine_of(url) as engine:
        (stream,) = engine.submit([job(1 << 16)])
        events = [event async for event in stream]
    deltas = [event for event in events if isinstance(event, Delta)]
    assert "".join(delta.text for delta in deltas) == "ä😀" * 50_000
    assert all(bytes(delta.tokens).decode() == delta.text for delta in deltas)
    assert max(map(weight, deltas)) <= 1 << 18


@pytest.mark.parametrize("end", [b"", b"\n"])
async def test_a_line_without_end_is_a_failure(end: bytes) -> None:
    sent = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent
        yield b'data: {"id": "'
        while True:
            yield b"x" * 65536 + end
            sent += 65536

    async with serving(streaming(endless)) as url, engine_of(url) as engine:
        answer = await ask(engine)
    assert isinstance(answer.end, Failure)
    assert sent < 100 * MOST_BYTES


@pytest.mark.parametrize("status", [200, 400, 500])
async def test_a_body_without_end_and_a_compressed_one_are_failures(status: int) -> None:
    sent = 0

    async def endless(request: web.Request) -> web.StreamResponse:
        nonlocal sent
        response = web.StreamResponse(status=status, headers={"Content-Type": "application/json"})
        await response.prepare(request)
        while True:
            await response.write(b" " * 65536)
            sent += 65536

    async def bomb(_request: web.Request) -> web.StreamResponse:
        body = gzip.compress(chunk("") * 100_000)
        headers = {"Content-Type": "text/event-stream", "Content-Encoding": "gzip"}
        return web.Response(status=status, body=body, headers=headers)

    for handler in (endless, bomb):
        # A silence would end neither before `ask` gives up.
        async with serving(handler) as url, engine_of(url, silence_s=60.0) as engine:
            answer = await ask(engine)
            assert isinstance(answer.end, Failure)
    assert sent < 100 * MOST_BYTES


@pytest.mark.parametrize("status", [400, 401, 403, 404, 422, 429, 500, 503])
async def test_no_word_of_a_servers_error_reaches_users_or_the_log(
    status: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def refuse(request: web.Request) -> web.StreamResponse:
        body = (await request.read()).decode()
        return web.json_response({"error": {"message": f"{SECRET} {body}"}}, status=status)

    with caplog.at_level(logging.INFO):
        async with serving(refuse) as url, engine_of(url) as engine:
            answer = await ask(engine)
    assert isinstance(answer.end, Failure)
    for text in (answer.end.message, caplog.text):
        assert SECRET not in text
        assert "private" not in text


@pytest.mark.parametrize("usage", [{"prompt_tokens": 10**400}, {"completion_tokens": -5}, {"prompt_tokens": "7"}, [1]])
async def test_figures_that_are_none_are_estimated(usage: object) -> None:
    async def odd() -> AsyncIterator[bytes]:
        yield chunk("eight wo", finish_reason="stop")
        yield b"data: " + json.dumps({"id": "c", "choices": [], "usage": usage}).encode() + b"\n\ndata: [DONE]\n\n"

    async with serving(streaming(odd)) as url, engine_of(url) as engine:
        answer = await ask(engine)
    if isinstance(answer.end, End):
        assert 0 <= answer.end.usage.prompt_tokens < 2**31
        assert answer.end.usage.completion_tokens == 2
