"""Requests for the fault tests: many users, each with one conversation, in a row."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from types import TracebackType
from typing import Self

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

from app.settings import Settings


class Load:
    """Sends `per_s` requests a second for as long as it is entered; all that it has sent is in `sent`."""

    def __init__(self, settings: Settings, *, per_s: float = 5.0, users: int = 16, tokens: int = 20) -> None:
        self.sent = 0
        self._settings = settings
        self._per_s = per_s
        self._users = users
        self._tokens = tokens
        self._deliveries: list[asyncio.Future[object]] = []

    async def __aenter__(self) -> Self:
        self._producer = AIOKafkaProducer(
            bootstrap_servers=self._settings.bootstrap_servers, enable_idempotence=True, request_timeout_ms=600_000
        )
        await self._producer.start()
        self._task = asyncio.create_task(self._send())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task
        await asyncio.gather(*self._deliveries)
        await self._producer.stop()

    async def _send(self) -> None:
        while True:
            user = f"user-{self.sent % self._users}"
            request = {
                "request_id": f"r{self.sent}",
                "user_id": user,
                "prompt": f"question {self.sent} of {user}",
                "max_tokens": self._tokens,
            }
            with suppress(KafkaError):  # not taken by the producer, so not sent
                self._deliveries.append(
                    await self._producer.send(
                        self._settings.topic("requests"), json.dumps(request).encode(), key=user.encode()
                    )
                )
                self.sent += 1
            await asyncio.sleep(1 / self._per_s)
