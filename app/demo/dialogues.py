"""The script, run through Kafka: both users at once, each one's lines in order, on one terminal.

One answer at a time has the terminal and is printed as its tokens arrive; what the other user says meanwhile follows at
the end of that answer.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from textwrap import shorten

import click

from app.chat_session import ChatSession
from app.demo.script import DemoError, Line, Speaker
from app.process.printable import printable
from app.reader import Answer, Following
from app.settings import Settings

ANSWER_TIMEOUT_S = 120.0
MAX_TOKENS = 64


class SharedScreen:
    """A terminal on which several users' answers arrive."""

    def __init__(self, speakers: Sequence[Speaker]) -> None:
        self._colours = {speaker.user_id: speaker.colour for speaker in speakers}
        self._width = max(map(len, self._colours))
        self._behind: dict[str, list[tuple[str, bool]]] = {user: [] for user in self._colours}
        self._writer: str | None = None

    def show_prompt(self, user: str, prompt: str) -> None:
        self._write(user, f"{self._name(user)} > {prompt}", ends=True)

    def begin_answer(self, user: str) -> None:
        self._write(user, f"{self._name(user)} < ")

    def add(self, user: str, text: str) -> None:
        self._write(user, text)

    def replace(self, user: str, answer: str) -> None:
        """Part of the text so far was retracted."""
        self._write(user, " [part of the answer was retracted; it is now]", ends=True)
        self._write(user, f"{self._name(user)} < {answer}")

    def end_answer(self, user: str, stats: str) -> None:
        self._write(user, f"   [{stats}]", ends=True)

    def close(self) -> None:
        """End a line that was begun."""
        if self._writer is not None:
            click.echo()
            self._writer = None

    def _name(self, user: str) -> str:
        return f"{user:<{self._width}}"

    def _write(self, user: str, text: str, *, ends: bool = False) -> None:
        if self._writer not in {None, user}:
            self._behind[user].append((text, ends))
            return
        self._print(user, text, ends=ends)
        for other, pieces in self._behind.items():
            while pieces and self._writer in {None, other}:
                self._print(other, pieces[0][0], ends=pieces.pop(0)[1])

    def _print(self, user: str, text: str, *, ends: bool) -> None:
        click.secho(printable(text), fg=self._colours[user], nl=ends)
        self._writer = None if ends else user


async def talk(settings: Settings, speakers: Sequence[Speaker], conversation_id: str) -> dict[str, list[str]]:
    """The request ids of each user's lines. Raises `DemoError` if an answer fails or lacks what an earlier turn
    mentioned.
    """
    screen = SharedScreen(speakers)
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(_one(settings, speaker, conversation_id, screen)) for speaker in speakers]
    except* DemoError as failures:
        raise DemoError("; ".join(map(str, failures.exceptions))) from None
    finally:
        screen.close()
    return {speaker.user_id: task.result() for speaker, task in zip(speakers, tasks, strict=True)}


async def _one(settings: Settings, speaker: Speaker, conversation_id: str, screen: SharedScreen) -> list[str]:
    session = ChatSession(settings, speaker.user_id, conversation_id, MAX_TOKENS)
    request_ids = []
    try:
        await session.start()
        for line in speaker.lines:
            screen.show_prompt(speaker.user_id, line.prompt)
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
    return request_ids


async def _answer(user: str, following: Following, asked_at: float, screen: SharedScreen) -> Answer:
    first: float | None = None
    answer: Answer | None = None
    try:
        async for update in following:
            answer = update.answer
            if first is None and update.text:
                first = time.monotonic() - asked_at
                screen.begin_answer(user)
            if update.cut is not None:
                screen.replace(user, answer.text)
            elif update.text:
                screen.add(user, update.text)
    finally:
        following.close()
    assert answer is not None, "an answer has an end"
    if first is not None:
        screen.end_answer(user, f"{answer.position} tokens, first after {1000 * first:.0f} ms")
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
