"""Answers to requests that a command has sent, a bounded number of them open at once; each is printed as it ends."""

from __future__ import annotations

import asyncio
from collections import Counter
from types import TracebackType
from typing import Self

import click
import msgspec

from app.process.printable import printable_json
from app.reader import Following, TokenReader
from app.settings import Settings
from app.wire.request import Request
from models.interface.generation import FinishReason

_ANSWERED = frozenset({FinishReason.STOP, FinishReason.LENGTH, FinishReason.TOOL_CALLS})


class OpenAnswers:
    """`ends`: how many answers ended how."""

    def __init__(self, settings: Settings, at_once: int) -> None:
        self.ends: Counter[str] = Counter()
        self._reader = TokenReader(settings.cluster, settings.topic("tokens"))
        self._room = asyncio.Semaphore(at_once)
        self._printing: dict[str, asyncio.Task[None]] = {}
        self._failure: BaseException | None = None

    async def __aenter__(self) -> Self:
        await self._reader.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            while error is None and self._printing and self._failure is None:
                await asyncio.wait(self._printing.values(), return_when=asyncio.FIRST_COMPLETED)
                await asyncio.sleep(0)  # what a task leaves is noted by its callback
        finally:
            for task in self._printing.values():
                task.cancel()
            await self._reader.stop()
        if error is None and self._failure is not None:
            raise self._failure

    async def expect(self, request: Request) -> None:
        """Wait for room; from then on the request may be sent. Raises what has ended the reading of answers."""
        await self._room.acquire()
        if self._failure is not None:
            raise self._failure
        following = self._reader.follow(request.user_id, request.request_id)
        task = asyncio.create_task(self._print(request, following))
        self._printing[request.request_id] = task
        task.add_done_callback(lambda done: self._ended(request, done))

    def forget(self, request: Request) -> None:
        """The request could not be sent."""
        if (task := self._printing.get(request.request_id)) is not None:
            task.cancel()

    def _ended(self, request: Request, done: asyncio.Task[None]) -> None:
        self._printing.pop(request.request_id, None)
        self._room.release()
        if not done.cancelled() and (error := done.exception()) is not None:
            self._failure = self._failure or error

    async def _print(self, request: Request, following: Following) -> None:
        try:
            async for update in following:
                answer = update.answer
        finally:
            following.close()
            self._reader.rule.forget((request.user_id, request.request_id))
        end = answer.end
        assert end is not None, "the answer has not ended"
        how = end.finish_reason if end.error is None else end.error.code
        self.ends["answered" if how in _ANSWERED else f"ended in {how}"] += 1
        line = {
            "request_id": request.request_id,
            "user_id": request.user_id,
            "conversation_id": answer.conversation_id,
            "answer": answer.text,
            "model_version": end.model_version,
            "finish_reason": end.finish_reason,
            "usage": end.usage,
            "error": None if end.error is None else end.error.code,
        }
        click.echo(printable_json(msgspec.json.encode(line)))
