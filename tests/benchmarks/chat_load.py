"""Load in the shape of a chat on any server of OpenAI's API: a user asks again after the answer has come.

A conversation has up to ten turns, which its user sends along; then another user begins. Answers are greedy and have
exactly so many tokens, whatever the model says, so that servers can be compared.
"""

from __future__ import annotations

import asyncio
import random
import time
import uuid
from dataclasses import dataclass
from http import HTTPStatus

import aiohttp
import msgspec

from tests.benchmarks.load import Reply

TURNS = 10
PATIENCE_S = 120.0
_PER_REPLY = 20
_WORDS = (
    *("please", "tell", "me", "where", "order", "number", "parcel", "refund", "returns", "shipping", "address"),
    *("invoice", "voucher", "shoes", "size", "delivery", "late"),
)
_DATA, _END = b"data: ", b"[DONE]"


@dataclass(frozen=True, slots=True)
class ChatLoad:
    """Closed with so many users `at_once`, or open with `rate` requests a second; ends `seconds` after it began."""

    seconds: float
    tokens: int
    at_once: int = 0
    rate: float = 0.0
    seed: int = 1


class ChatUsers:
    """`url` is that of the API; `model` what it calls its model, or empty; `key` the one of all users, or empty: each
    has its own, its name. Not every server `takes_least`: fields that fix how many tokens an answer has. `refusal` is
    what the server said last to a request that it did not answer.
    """

    def __init__(self, url: str, model: str, key: str, *, takes_least: bool = True) -> None:
        self._url, self._model, self._key = f"{url}/chat/completions", model, key
        self._takes_least = takes_least
        self._run = uuid.uuid4().hex[:8]
        self.refusal = ""
        self._users = 0

    async def run(self, load: ChatLoad) -> list[Reply]:
        chance = random.Random(load.seed)
        replies: list[Reply] = []
        timeout = aiohttp.ClientTimeout(total=PATIENCE_S)
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=timeout) as session:
            end = time.perf_counter() + load.seconds
            if load.at_once:
                users = (
                    self._talk(session, load, random.Random(chance.random()), end, replies) for _ in range(load.at_once)
                )
                await asyncio.gather(*users)
            else:
                await self._open(session, load, chance, end, replies)
        return replies

    async def _open(
        self, session: aiohttp.ClientSession, load: ChatLoad, chance: random.Random, end: float, replies: list[Reply]
    ) -> None:
        asked: list[asyncio.Task[str]] = []
        due = time.perf_counter() + chance.expovariate(load.rate)
        while due < end:
            await asyncio.sleep(due - time.perf_counter())
            replies.append(Reply(due))
            talk = [{"role": "user", "content": _question(chance)}]
            asked.append(asyncio.create_task(self._ask(session, self._user(), talk, load.tokens, replies[-1])))
            due += chance.expovariate(load.rate)
        await asyncio.gather(*asked)

    async def _talk(
        self, session: aiohttp.ClientSession, load: ChatLoad, chance: random.Random, end: float, replies: list[Reply]
    ) -> None:
        talk: list[dict[str, str]] = []
        user = self._user()
        while time.perf_counter() < end:
            if len(talk) >= 2 * TURNS:
                talk, user = [], self._user()
            talk.append({"role": "user", "content": _question(chance)})
            replies.append(Reply(time.perf_counter()))
            talk.append(
                {"role": "assistant", "content": await self._ask(session, user, talk, load.tokens, replies[-1])}
            )

    def _user(self) -> str:
        self._users += 1
        return f"{self._run}-{self._users}"

    async def _ask(
        self, session: aiohttp.ClientSession, user: str, talk: list[dict[str, str]], tokens: int, reply: Reply
    ) -> str:
        body: dict[str, object] = {
            "messages": talk, "user": user, "stream": True, "temperature": 0.0,
            "max_tokens": tokens, "stream_options": {"include_usage": True},
        }  # fmt: skip
        if self._takes_least:
            body |= {"min_tokens": tokens, "ignore_eos": True}
        if self._model:
            body["model"] = self._model
        said: list[str] = []
        try:
            headers = {"Authorization": f"Bearer {self._key or user}"}
            async with await _posted(session, self._url, body, headers) as response:
                if response.status != HTTPStatus.OK:
                    reply.failed, self.refusal = True, f"{response.status}: {(await response.text())[:300]}"
                async for line in response.content:
                    if line.startswith(_DATA) and _END not in line:
                        _read(msgspec.json.decode(line[len(_DATA) :]), said, reply)
        except (aiohttp.ClientError, TimeoutError, msgspec.DecodeError) as error:
            reply.failed, self.refusal = True, repr(error)[:300]
        reply.end = time.perf_counter()
        reply.failed = reply.failed or not reply.tokens
        return "".join(said)


async def _posted(
    session: aiohttp.ClientSession, url: str, body: dict[str, object], headers: dict[str, str]
) -> aiohttp.ClientResponse:
    """Once more if the server has just closed the connection that was kept, as llama.cpp's does after some answers."""
    try:
        return await session.post(url, json=body, headers=headers)
    except aiohttp.ClientOSError:
        return await session.post(url, json=body, headers=headers)


def _read(chunk: dict[str, object], said: list[str], reply: Reply) -> None:
    usage, choices = chunk.get("usage"), chunk.get("choices")
    if isinstance(usage, dict):
        reply.tokens = int(usage["completion_tokens"])
    if isinstance(choices, list) and choices and (text := choices[0].get("delta", {}).get("content")):
        said.append(text)
        reply.events.append(time.perf_counter())


def _question(chance: random.Random) -> str:
    return f"{' '.join(chance.choice(_WORDS) for _ in range(_PER_REPLY))} {chance.randrange(99999)}"
