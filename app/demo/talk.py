"""The script, run through Kafka: both users at once, each one's lines in order."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import shorten

from app.chat_session import ChatSession
from app.demo.screen import Screen
from app.demo.script import DemoError, Line, Speaker
from app.reader import Answer, Following
from app.settings import Settings

ANSWER_TIMEOUT_S = 120.0
MAX_TOKENS = 64


@dataclass(frozen=True, slots=True)
class Talk:
    """The request ids of one user's lines, in order."""

    user_id: str
    conversation_id: str
    request_ids: tuple[str, ...]


async def talk(settings: Settings, speakers: Sequence[Speaker], conversation_id: str, screen: Screen) -> list[Talk]:
    """Raises `DemoError` if an answer fails or lacks what an earlier turn mentioned."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(_one(settings, speaker, conversation_id, screen)) for speaker in speakers]
    except* DemoError as failures:
        raise DemoError("; ".join(map(str, failures.exceptions))) from None
    return [task.result() for task in tasks]


async def _one(settings: Settings, speaker: Speaker, conversation_id: str, screen: Screen) -> Talk:
    session = ChatSession(settings, speaker.user_id, conversation_id, MAX_TOKENS)
    request_ids = []
    try:
        await session.start()
        for line in speaker.lines:
            screen.asked(speaker.user_id, line.prompt)
            asked_at = time.monotonic()
            request_id, following = await session.ask(line.prompt)
            request_ids.append(request_id)
            try:
                async with asyncio.timeout(ANSWER_TIMEOUT_S):
                    answer = await _answer(speaker.user_id, following, asked_at, screen)
            except TimeoutError:
                raise DemoError(f"{speaker.user_id} got no complete answer in {ANSWER_TIMEOUT_S:.0f} s") from None
            _check(speaker, line, answer)
    finally:
        await session.stop()
    return Talk(speaker.user_id, conversation_id, tuple(request_ids))


async def _answer(user: str, following: Following, asked_at: float, screen: Screen) -> Answer:
    first: float | None = None
    answer: Answer | None = None
    try:
        async for update in following:
            answer = update.answer
            if first is None and update.text:
                first = time.monotonic() - asked_at
            if update.cut is not None:
                screen.taken_back(user, answer.text)
            elif update.text:
                screen.add(user, update.text)
    finally:
        following.close()
    assert answer is not None, "an answer has an end"
    whole = time.monotonic() - asked_at
    screen.ended(user, answer.text, f"{answer.position} tokens, first after {1000 * (first or whole):.0f} ms")
    return answer


def _check(speaker: Speaker, line: Line, answer: Answer) -> None:
    error = answer.end.error if answer.end else None
    if error is not None:
        raise DemoError(f"{speaker.user_id} got an error: {error.message} ({error.code})")
    if not answer.complete or not answer.text.strip():
        raise DemoError(f"{speaker.user_id} got no complete answer to {line.prompt!r}: {_short(answer)}")
    if line.expected is not None and line.expected not in answer.text:
        raise DemoError(f"{speaker.user_id} asked {line.prompt!r}, and {line.expected!r} is not in {_short(answer)}")


def _short(answer: Answer) -> str:
    return repr(shorten(answer.text, 100, placeholder="…"))
