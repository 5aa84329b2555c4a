"""Requests and controls on their way into Kafka."""

from __future__ import annotations

import asyncio
from collections import OrderedDict

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError, MessageSizeTooLargeError

from app.gateway.errors import ApiError
from app.kafka_clients import producer, start
from app.reader.rule import Key
from app.settings import Settings
from app.telemetry.context import carried
from app.wire import Cancel, Erase, ErrorCode, Request, WireError, encode, validate_request

_REMEMBERED = 10_000
_PROBE_S = 3.0


class Outbox:
    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._producer: AIOKafkaProducer | None = None
        self._sent: OrderedDict[Key, Request] = OrderedDict()
        self._own: set[Key] = set()

    async def start(self) -> None:
        self._producer = producer(self._settings.cluster)
        await start(self._producer)

    async def stop(self) -> None:
        if self._producer is not None:
            await self._producer.stop()

    def sent(self, user_id: str, request_id: str) -> Request | None:
        """A request that went out here, whether or not anything was said to it yet."""
        return self._sent.get((user_id, request_id))

    def is_new(self, user_id: str, request_id: str) -> bool:
        """Whether the id was made here for a request that went out here: all of its answer was or will be live."""
        return (user_id, request_id) in self._own

    def forget(self, key: Key) -> None:
        """The answer has left the memory: from now on it is like any other."""
        self._sent.pop(key, None)
        self._own.discard(key)

    async def ask(self, request: Request, *, is_new: bool) -> None:
        """Send it; `is_new` says that its id was made here, and nobody can have used it before."""
        try:
            validate_request(request, request.user_id.encode(), max_prompt_bytes=self._settings.max_prompt_bytes)
        except WireError as error:
            raise ApiError(error.code, error.message, param=_param(error.message)) from None
        await self._send("requests", request)
        key = (request.user_id, request.request_id)
        self._sent[key] = request
        if is_new:
            self._own.add(key)
        if len(self._sent) > _REMEMBERED:
            self.forget(next(iter(self._sent)))

    async def cancel(self, user_id: str, request_id: str) -> None:
        await self._send("controls", Cancel(request_id=request_id, user_id=user_id))

    async def erase(self, user_id: str) -> None:
        await self._send("controls", Erase(user_id=user_id))

    async def reachable(self) -> bool:
        if self._producer is None:
            return False
        try:
            async with asyncio.timeout(_PROBE_S):
                return bool(await self._producer.client.force_metadata_update())
        except (KafkaError, OSError, TimeoutError):
            return False

    async def _send(self, topic: str, record: Request | Cancel | Erase) -> None:
        assert self._producer is not None, "the outbox was not started"
        value, headers = encode(record, self._settings.wire_format)
        headers.extend(carried.get())
        try:
            await self._producer.send_and_wait(
                self._settings.topic(topic), value, key=record.user_id.encode(), headers=headers
            )
        except MessageSizeTooLargeError:
            raise ApiError(ErrorCode.INVALID_REQUEST, "the request is too large for Kafka", status=413) from None
        except KafkaError as error:
            raise ApiError(
                ErrorCode.UNAVAILABLE, f"Kafka does not take requests now: {error}", retry_after_s=5
            ) from None


def _param(message: str) -> str | None:
    """The field that a message of `validate_request` begins with."""
    name, colon, _ = message.partition(":")
    return name if colon and name.replace(".", "_").isidentifier() else None
