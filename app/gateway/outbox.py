"""Requests and controls on their way into Kafka.

aiokafka waits for a broker that is away as long as it takes to come back. A caller is told after `ANSWER_S` that it is
away; a record that lies in the producer by then may still go out, and what becomes of it is noted when it is known.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable
from typing import TypeAlias

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError, MessageSizeTooLargeError
from aiokafka.structs import RecordMetadata

from app.gateway.errors import ApiError
from app.kafka_clients import producer, start
from app.reader.rule import Key
from app.settings import Settings
from app.telemetry.context import carried
from app.wire import Cancel, Erase, ErrorCode, Request, WireError, encode, validate_request

log = logging.getLogger(__name__)

ANSWER_S = 5.0
_REMEMBERED = 10_000
_PROBE_S = 3.0

Record: TypeAlias = Request | Cancel | Erase


class Outbox:
    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._producer: AIOKafkaProducer | None = None
        self._sent: OrderedDict[Key, str] = OrderedDict()
        self._own: set[Key] = set()
        self._waiting: dict[asyncio.Future[object], Record] = {}

    async def start(self) -> None:
        self._producer = producer(self._settings.cluster)
        await start(self._producer)

    async def stop(self) -> None:
        """What is on its way has `ANSWER_S` to get into Kafka; what has not by then is told to the log."""
        if self._producer is None:
            return
        try:
            async with asyncio.timeout(ANSWER_S):
                await self._producer.stop()
        except TimeoutError:
            for record in self._waiting.values():
                log.warning("%s is given up: Kafka has not answered", _told(record))

    def sent(self, user_id: str, request_id: str) -> str | None:
        """The conversation of a request that went out here, whether or not it has an answer yet."""
        return self._sent.get((user_id, request_id))

    def is_new(self, user_id: str, request_id: str) -> bool:
        """Whether the id was made here for a request that went out here: all of its answer was or will be live."""
        return (user_id, request_id) in self._own

    def forget(self, key: Key) -> None:
        """The answer has left the memory: from now on it is like any other."""
        self._sent.pop(key, None)
        self._own.discard(key)

    async def ask(self, request: Request, *, is_new: bool) -> None:
        """Send it; `is_new` says that its id was made here, and nobody can have used it before.

        Raises `ApiError`: `unavailable` where Kafka has not taken it within `ANSWER_S`; it may still go out.
        """
        try:
            validate_request(request, request.user_id.encode(), max_prompt_bytes=self._settings.max_prompt_bytes)
        except WireError as error:
            raise ApiError(error.code, error.message, param=_param(error.message)) from None
        await self._send("requests", request, lambda: self._remember(request, is_new=is_new))

    def _remember(self, request: Request, *, is_new: bool) -> None:
        key = (request.user_id, request.request_id)
        self._sent[key] = request.conversation_id
        if is_new:
            self._own.add(key)
        if len(self._sent) > _REMEMBERED:
            self.forget(next(iter(self._sent)))

    async def cancel(self, user_id: str, request_id: str) -> None:
        await self._send("controls", Cancel(request_id=request_id, user_id=user_id))

    async def erase(self, user_id: str) -> int:
        """When the erasure got into Kafka, in Unix milliseconds; what was asked until then is forgotten."""
        return (await self._send("controls", Erase(user_id=user_id))).timestamp

    async def reachable(self) -> bool:
        if self._producer is None:
            return False
        try:
            async with asyncio.timeout(_PROBE_S):
                return bool(await self._producer.client.force_metadata_update())
        except (KafkaError, OSError, TimeoutError):
            return False

    async def _send(self, topic: str, record: Record, on_taken: Callable[[], None] = lambda: None) -> RecordMetadata:
        assert self._producer is not None, "the outbox was not started"
        value, headers = encode(record, self._settings.wire_format)
        headers.extend(carried.get())
        try:
            async with asyncio.timeout(ANSWER_S):
                taken = await self._producer.send(
                    self._settings.topic(topic), value, key=record.user_id.encode(), headers=headers
                )
                self._waiting[taken] = record
                taken.add_done_callback(lambda done: self._note(done, on_taken))
                # The producer keeps a record whose caller has gone: only its fate must stay to be seen.
                receipt: RecordMetadata = await asyncio.shield(taken)
        except MessageSizeTooLargeError:
            raise ApiError(ErrorCode.INVALID_REQUEST, "the request is too large for Kafka", status=413) from None
        except TimeoutError:
            message = f"Kafka has not answered within {ANSWER_S:g} s; {_still(record)}"
            raise ApiError(ErrorCode.UNAVAILABLE, message, retry_after_s=ANSWER_S) from None
        except KafkaError as error:
            log.warning("Kafka does not take %s: %s", _told(record), error)
            raise ApiError(ErrorCode.UNAVAILABLE, "Kafka does not take requests now", retry_after_s=5) from None
        return receipt

    def _note(self, done: asyncio.Future[object], on_taken: Callable[[], None]) -> None:
        """Whether or not its caller still waits."""
        record = self._waiting.pop(done)
        if done.cancelled():
            return
        if error := done.exception():
            log.warning("%s did not get into Kafka, its sender was told: %s", _told(record), error)
        else:
            on_taken()


def _told(record: Record) -> str:
    about = "" if isinstance(record, Erase) else f" {record.request_id}"
    return f"{type(record).__name__.lower()}{about} of {record.user_id!r}"


def _still(record: Record) -> str:
    if isinstance(record, Request):
        again = "with this request_id to be answered once"
        return f"the request may still go out: ask again {again} (request_id {record.request_id})"
    return "what was asked may still be done: ask again"


def _param(message: str) -> str | None:
    """The field that a message of `validate_request` begins with."""
    name, colon, _ = message.partition(":")
    return name if colon and name.replace(".", "_").isidentifier() else None
