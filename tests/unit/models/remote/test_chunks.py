"""The chunks of a stream are those that OpenAI's client reads, wherever the network cuts it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from itertools import pairwise

import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.remote.chunks import Chunks
from models.remote.http import ServerMisbehaved
from tests.unit.models.remote.test_hostile_server import serving, streaming

WORDS = ["one ", "zwei äöü ", "три\u2028", "四\n", '"five"']


def _chunk(text: str, indent: int | None = None) -> str:
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": None}
    content = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
    return json.dumps(content, ensure_ascii=False, indent=indent)


ENDS = ["\n", "\r\n", "\r"]
STREAMS = {
    "plain": "".join(f"data: {_chunk(one)}\n\n" for one in WORDS) + "data: [DONE]\n\n",
    "no space": "".join(f"data:{_chunk(one)}\n\n" for one in WORDS) + "data:[DONE]\n\n",
    "comments": ": hello\n\n" + "".join(f": ping\ndata: {_chunk(one)}\n\n" for one in WORDS) + "data: [DONE]\n\n",
    "other fields": "".join(f"event: m\nid: 7\nretry: 5\ndata: {_chunk(one)}\n\n" for one in WORDS),
    "lines": "".join(
        "".join(f"data: {line}\n" for line in _chunk(one, indent=1).splitlines() if one != WORDS[2]) + "\n"
        for one in WORDS
    )
    + "data: [DONE]\n\n",
    "empty lines": "\n\n" + "".join(f"data: {_chunk(one)}\n\n\n\n" for one in WORDS) + "data: [DONE]\n\n",
    "behind the end": f"data: {_chunk(WORDS[0])}\n\ndata: [DONE]\n\ndata: {_chunk(WORDS[1])}\n\n",
    "nothing": "data: [DONE]\n\n",
    "no end": f"data: {_chunk(WORDS[0])}\n\n",
}


async def read_by_the_client(streams: list[bytes]) -> list[list[str | None]]:
    following = iter(streams)

    async def parts() -> AsyncIterator[bytes]:
        yield next(following)

    async with serving(streaming(parts)) as url, openai.AsyncOpenAI(base_url=url, api_key="k") as client:
        return [[text async for text in _texts(client)] for _ in streams]


async def _texts(client: openai.AsyncOpenAI) -> AsyncIterator[str | None]:
    async for chunk in await client.chat.completions.create(model="m", messages=[], stream=True):
        yield chunk.choices[0].delta.content


def read(parts: list[bytes]) -> list[str]:
    chunks = Chunks()
    return [choice.content for part in parts for chunk in chunks.add(part) for choice in chunk.choices or ()]


async def test_a_stream_says_what_openais_client_reads() -> None:
    streams = [stream.replace("\n", end).encode() for stream in STREAMS.values() for end in ENDS]
    for stream, wanted in zip(streams, await read_by_the_client(streams), strict=True):
        assert read([stream]) == wanted
        assert read([stream[at : at + 1] for at in range(len(stream))]) == wanted


@given(st.sampled_from(sorted(STREAMS)), st.sampled_from(ENDS), st.lists(st.integers(0, 2000)))
def test_it_may_be_cut_anywhere(kind: str, end: str, cuts: list[int]) -> None:
    stream = STREAMS[kind].replace("\n", end).encode()
    ends = sorted({min(cut, len(stream)) for cut in cuts} | {0, len(stream)})
    assert read([stream[at:to] for at, to in pairwise(ends)]) == read([stream])


@pytest.mark.parametrize(
    "data", ["{", "[1, 2]", '{"choices": [{"delta": {"content": 7}}]}', '{"choices": [{"token_ids": [-1]}]}', "hello"]
)
def test_what_is_no_chunk_is_an_error(data: str) -> None:
    with pytest.raises(ServerMisbehaved):
        read([f"data: {data}\n\n".encode()])
