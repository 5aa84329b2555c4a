"""Users who ask through the gateways while a page is executed, with the client package: one question after another."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from parley_client import AnswerFailedError, AsyncParley, RefusedError, UnreachableError

from tests.faults.load import paced_question

PATIENCE_S = 240.0
"""Longer than a page takes a gateway away."""
_THINK_S = 0.2
_KEY_IS_NEW_S = 0.5


@dataclass
class Callers:
    """`urls`: each user has one of the gateways. `key_file` has the key of the tenant `shop`, and may change."""

    urls: list[str]
    key_file: Path
    users: int = 6
    first: int = 0
    """The number of the first user: two sets of callers have different users."""
    answered: int = 0
    failed: list[str] = field(default_factory=list)
    """Answers that ended with an error, calls that were refused, gateways that were not heard for `PATIENCE_S`."""
    asked_again: int = 0
    token: Callable[[str, str], str] = lambda _user, key: key
    """What a user shows, made of what is in the key file."""
    pauses: list[float] = field(default_factory=list)
    """Seconds without a sign of an answer that was asked for, at least one for each answer."""
    waiting: dict[str, float] = field(default_factory=dict)
    """What is asked and not answered yet, and since when."""
    _stopping: bool = False

    async def __aenter__(self) -> Self:
        self._tasks = [asyncio.create_task(self._user(self.first + one)) for one in range(self.users)]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def answers(self, more: int) -> None:
        """Wait until so many more are answered."""
        wanted = self.answered + more
        while self.answered < wanted:
            for task in self._tasks:
                if task.done():
                    task.result()
            await asyncio.sleep(0.1)

    async def finish(self) -> None:
        """No more questions; wait for the answers that are under way."""
        self._stopping = True
        await asyncio.gather(*self._tasks)

    def summary(self) -> str:
        now = time.monotonic()
        waiting = [f"{name} for {now - since:.0f} s" for name, since in self.waiting.items()]
        return f"{self.answered} answered; failed: {self.failed[:5]}; wait for an answer: {', '.join(waiting)}"

    async def _user(self, number: int) -> None:
        asked = 0
        while not self._stopping:
            await self._ask(number, number + asked * self.users)
            asked += 1
            await asyncio.sleep(_THINK_S)

    async def _ask(self, number: int, question: int) -> None:
        user, request_id = f"user-{number}", f"q{question}"
        fields = {name: value for name, value in paced_question(question, user).items() if name != "tools"}
        heard_at, longest = time.monotonic(), 0.0
        self.waiting[f"{user}/{request_id}"] = heard_at
        while True:
            key = self.key_file.read_text().strip()
            try:
                token = self.token(user, key)
                async with AsyncParley(self._url(number), key=token, user=user, patience_s=PATIENCE_S) as parley:
                    async for _ in await parley.ask(request_id=request_id, **fields):
                        longest, heard_at = max(longest, time.monotonic() - heard_at), time.monotonic()
                break
            except (AnswerFailedError, UnreachableError) as error:
                self.failed.append(f"{user}/{request_id}: {error}")
                break
            except RefusedError as error:
                if error.status == 401 and key != self.key_file.read_text().strip():
                    continue  # its key was replaced meanwhile: it asks for the same again with the new one
                if error.status == 404:
                    self.asked_again += 1  # a restored backup does not know it
                    continue
                self.failed.append(f"{user}/{request_id}: {error}")
                break
        del self.waiting[f"{user}/{request_id}"]
        self.answered += 1
        self.pauses.append(longest)

    def _url(self, number: int) -> str:
        return self.urls[number % len(self.urls)]
