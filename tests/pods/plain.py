"""Callers without the client package: a new connection for each call, and nothing is tried again."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

import httpx

from tests.operations.stage import KEY

_PAUSE_S = 0.05
_PATIENCE_S = 60.0


@dataclass
class PlainCallers:
    """One lists the models, the other asks for whole answers (no stream)."""

    url: str
    calls: Counter[str] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)
    """By what was called and how it failed."""

    async def __aenter__(self) -> Self:
        self._tasks = [asyncio.create_task(self._list()), asyncio.create_task(self._ask())]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _list(self) -> None:
        while True:
            await self._call("models", "GET", "/v1/models", None)
            await asyncio.sleep(_PAUSE_S)

    async def _ask(self) -> None:
        number = 0
        while True:
            number += 1
            messages = [{"role": "user", "content": f"question {number} of plain"}]
            body = {"messages": messages, "max_tokens": 20, "user": f"plain-{number}", "model": "demo"}
            await self._call("whole answers", "POST", "/v1/chat/completions", body)
            await asyncio.sleep(_PAUSE_S)

    async def _call(self, name: str, method: str, path: str, body: dict[str, object] | None) -> None:
        self.calls[name] += 1
        headers = {"Authorization": f"Bearer {KEY}"}
        try:
            async with httpx.AsyncClient(base_url=self.url, timeout=_PATIENCE_S, trust_env=False, verify=False) as http:
                answer = await http.request(method, path, json=body, headers=headers)
            if not answer.is_success:
                self.failed[f"{name}: {answer.status_code} {_code_of(answer)}"] += 1
        except httpx.TransportError as error:
            self.failed[f"{name}: {type(error).__name__}"] += 1


def _code_of(answer: httpx.Response) -> str:
    try:
        return str(answer.json()["error"]["code"])
    except (ValueError, KeyError, TypeError):
        return "without a code of Parley's"
