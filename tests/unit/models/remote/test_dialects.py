"""Streams of many servers (dialects.toml): the whole text and the server's own end, however the network writes them."""

from __future__ import annotations

import json
import logging
import tomllib
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from aiohttp import web

from models.interface.generation import End, FinishReason
from models.remote.reasons import reason_of
from models.remote.servers import Circuit
from tests.unit.models.remote.test_hostile_server import ask, engine_of, job, serving, streaming

TEXT = "Grüße 🙂 aus Köln"
STREAMS = tomllib.loads(Path(__file__).with_name("dialects.toml").read_text())["stream"]
NAMES = [one["server"] for one in STREAMS]
WRITTEN: dict[str, Callable[[bytes], list[bytes]]] = {
    "as it is": lambda body: [body],
    "CRLF": lambda body: [body.replace(b"\n", b"\r\n")],
    "CR": lambda body: [body.replace(b"\n", b"\r")],
    "a byte order mark": lambda body: [b"\xef", b"\xbb\xbf" + body],
    "in pieces of seven bytes": lambda body: [body[at : at + 7] for at in range(0, len(body), 7)],
    "in ASCII": lambda body: [body.replace(b"\xf0\x9f\x99\x82", b"\\ud83d\\ude42")],
}
USAGE = (9, 5)
FAILED = {True: FinishReason.PARTIAL, False: "engine_error"}
"""By whether there is text."""


async def answered(parts: list[bytes], **options: object) -> tuple[str, str, End | None, Circuit]:
    async def said() -> AsyncIterator[bytes]:
        for part in parts:
            yield part

    async def handle(request: web.Request) -> web.StreamResponse:
        return await streaming(said)(request) if request.method == "POST" else web.json_response({"data": []})

    async with serving(handle) as url, engine_of(url, is_vllm=False, **options) as engine:
        answer = await ask(engine, job(64))
        (server,) = engine._servers._all
        end = answer.end if isinstance(answer.end, End) else None
        return answer.text, answer.reason, end, server.circuit


@pytest.mark.parametrize("stream", STREAMS, ids=NAMES)
@pytest.mark.parametrize("way", WRITTEN)
async def test_a_stream_is_read_as_its_server_means_it(stream: dict[str, str], way: str) -> None:
    text, reason, end, circuit = await answered(WRITTEN[way](stream["body"].encode()))
    wanted = stream.get("reason", "stop")
    assert (text, reason) == (stream.get("text", TEXT), FAILED[bool(text)] if wanted == "none" else wanted)
    if '"prompt_tokens":9' in stream["body"] and end is not None:
        assert (end.usage.prompt_tokens, end.usage.completion_tokens) == USAGE
    assert circuit is Circuit.CLOSED


@pytest.mark.parametrize("stream", STREAMS, ids=NAMES)
async def test_a_shape_of_its_own_is_logged_once_without_a_word_of_the_answer(
    stream: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    async def said() -> AsyncIterator[bytes]:
        yield stream["body"].encode()

    with caplog.at_level(logging.INFO):
        async with serving(streaming(said)) as url, engine_of(url, is_vllm=False) as engine:
            for _ in range(3):
                await ask(engine, job(64))
    lines = [one for one in caplog.messages if "OpenAI's form" in one]
    assert len(lines) == len(set(lines))
    assert "Gr" not in caplog.text.replace("Groq", "")
    assert "Köln" not in caplog.text


def data(content: object) -> bytes:
    return b"data: " + json.dumps(content).encode() + b"\n\n"


def said(text: object, reason: object = None) -> bytes:
    return data({"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": reason}]})


DONE = b"data: [DONE]\n\n"
BEHIND = {
    "text": said(" and more"),
    "text with a reason": said(" and more", "length"),
    "an error": data({"error": {"message": "boom"}}),
    "null choices": data({"choices": None, "usage": {}}),
    "no JSON": b"data: {not json\n\n",
    "no object": data([1, 2]),
    "a failure": said("", "error"),
    "HTML": b"<html>",
    "a number as content": said(7),
}


@pytest.mark.parametrize("behind", BEHIND)
async def test_an_answer_that_has_had_its_reason_is_over_whatever_follows(behind: str) -> None:
    for end in (DONE, b""):
        text, reason, _, circuit = await answered([said("whole"), said("", "stop") + BEHIND[behind], end])
        assert (text, reason, circuit) == ("whole", "stop", Circuit.CLOSED)


async def test_a_connection_that_stays_open_behind_the_reason_holds_up_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("models.remote.engine._BEHIND_S", 0.1)

    async def drip() -> AsyncIterator[bytes]:
        yield said("whole", "stop")
        while True:
            yield said(" more")

    async with serving(streaming(drip)) as url, engine_of(url, is_vllm=False, silence_s=60.0) as engine:
        answer = await ask(engine, job(64))
        assert (answer.text, answer.reason) == ("whole", "stop")
        assert engine.stats.servers[0].failures == 0


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        *[
            (word, FinishReason.STOP)
            for word in ("stop", "STOP", "eos", "eos_token", "end_turn", "endTurn", "COMPLETE")
        ],
        *[(word, FinishReason.STOP) for word in ("tool_calls", "toolCalls", "function_call", "stop-sequence", "bored")],
        *[(word, FinishReason.LENGTH) for word in ("length", "MAX_TOKENS", "maxTokens", "model_length")],
        *[(word, FinishReason.FILTERED) for word in ("content_filter", "content-filter", "SAFETY", "refusal")],
        *[(word, None) for word in ("", " ", "null", "None", "FINISH_REASON_UNSPECIFIED")],
    ],
)
def test_a_reason_in_the_words_of_another_api(word: str, reason: FinishReason | None) -> None:
    assert reason_of(word) is reason


@pytest.mark.parametrize("reason", [{"type": "stop"}, "a reason that\nis a text of the user's", 1, True])
async def test_a_reason_of_another_form_ends_the_answer(reason: object, caplog: pytest.LogCaptureFixture) -> None:
    assert (await answered([said("whole"), said("", reason), DONE]))[:2] == ("whole", "stop")
    assert "the user" not in caplog.text


@pytest.mark.parametrize(
    ("halves", "text"),
    [
        ([b'"x\\ud83d"', b'"\\ude42y"'], "x🙂y"),
        ([b'"x\\ud83d"', b'""', b'"\\ude42y"'], "x🙂y"),
        ([b'"x\\ud83d"', b'"y"'], "x\ufffdy"),
        ([b'"x\\ude42y"'], "x\ufffdy"),
        ([b'"x\xf0\x9f"', b'"y"'], "x\ufffdy"),
    ],
)
async def test_half_a_character_is_joined_or_shown_as_one(halves: list[bytes], text: str) -> None:
    chunks = [b'data: {"choices":[{"index":0,"delta":{"content":' + half + b"}}]}\n\n" for half in halves]
    assert (await answered([*chunks, said("", "stop"), DONE]))[:2] == (text, "stop")


@pytest.mark.parametrize(
    "content",
    [
        ["who", {"type": "text", "text": "le"}],
        {"type": "text", "text": "whole"},
        [{"text": "whole"}, {"type": "image_url", "image_url": {"url": "x"}}, None, 7, {"type": "text", "text": None}],
        [{"type": "output_text", "text": "whole"}, {"type": "reasoning", "text": "hm"}],
    ],
)
async def test_the_texts_of_a_content_in_parts_are_joined(content: object) -> None:
    assert (await answered([said(content), said("", "stop"), DONE]))[:2] == ("whole", "stop")


@pytest.mark.parametrize("ping", [b"data: null\n\n", b"data:\n\n", b"data: ping\n\n", b"event: ping\ndata: {}\n\n"])
async def test_what_keeps_a_connection_alive_is_no_chunk(ping: bytes) -> None:
    assert (await answered([ping, said("whole"), ping, said("", "stop"), DONE]))[:2] == ("whole", "stop")


async def test_thinking_alone_breaks_the_silence_and_is_no_text() -> None:
    parts = [said([{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}]), said("whole", "stop"), DONE]
    assert (await answered(parts))[:2] == ("whole", "stop")


async def test_words_that_are_refused_beside_the_reason_do_not_end_the_answer() -> None:
    last = {"index": 0, "delta": {"content": "x" * 10_000}, "finish_reason": "stop", "token_ids": [7]}
    first = {"index": 0, "delta": {"content": "a"}, "token_ids": [5]}
    parts = [data({"choices": [first]}), data({"choices": [last]}), DONE]
    assert (await answered(parts))[:2] == ("a", FinishReason.PARTIAL)
