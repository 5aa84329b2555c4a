"""Writes requests and controls to Kafka.

aiokafka waits for an unreachable broker without a limit. A caller gets an error after `ANSWER_S`; a record that is in
the producer by then may still be written, and its outcome is logged.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError, MessageSizeTooLargeError
from aiokafka.structs import RecordMetadata

from app.gateway.answers.sent import SentRequests
from app.gateway.edge.errors import ApiError, refused
from app.kafka.clients import producer, start, stop
from app.settings import Settings
from app.telemetry.tracing import trace_headers
from app.wire.codec import WITHDRAWN, encode
from app.wire.control import Audit, Cancel, Decide, Erase, EraseConversation, erase
from app.wire.error import ErrorCode, WireError
from app.wire.request import Request
from app.wire.validation import validate_made
from tables.erasures import Scope

log = logging.getLogger(__name__)

ANSWER_S = 5.0
_PROBE_S = 3.0

Record: TypeAlias = Request | Cancel | Erase | EraseConversation | Decide | Audit
RecordHeaders: TypeAlias = Sequence[tuple[str, bytes]]


class RequestProducer:
    def __init__(self, settings: Settings, sent: SentRequests) -> None:
        self._settings = settings
        self._sent = sent
        self._producer: AIOKafkaProducer | None = None
        self._waiting: dict[asyncio.Future[object], Record] = {}

    async def start(self) -> None:
        self._producer = producer(self._settings.cluster)
        await start(self._producer)

    async def stop(self) -> None:
        """Give records in flight `ANSWER_S` to be written; log those that are not."""
        if self._producer is None:
            return
        try:
            async with asyncio.timeout(ANSWER_S):
                await stop(self._producer)
        except TimeoutError:
            for record in self._waiting.values():
                log.warning("%s is abandoned: Kafka has not answered", _described(record))

    def check(self, request: Request) -> None:
        """Raise `ApiError` for a request that a worker would refuse."""
        try:
            validate_made(request, max_prompt_bytes=self._settings.max_prompt_bytes)
        except WireError as error:
            raise refused(error.code, error.message) from None

    async def ask(self, request: Request, *, is_new: bool, headers: RecordHeaders = ()) -> None:
        """Send a request that was checked; `is_new` means that its id was created here, so that no earlier request can
        have it. `headers` are for gateways, which find them at the record.

        Raises `ApiError`: `unavailable` if Kafka has not accepted it within `ANSWER_S`; it may still be written.
        """
        asked_at = time.time()
        key = (request.user_id, request.request_id)
        remember = partial(self._sent.add, key, request.conversation_id, asked_at if is_new else None)
        await self._send("requests", request, remember, headers)

    async def cancel(self, user_id: str, request_id: str) -> None:
        await self._send("controls", Cancel(request_id=request_id, user_id=user_id))

    async def withdraw(self, user_id: str, request_id: str) -> None:
        """Cancel the request, and let no gateway serve its response any more."""
        await self._send("controls", Cancel(request_id=request_id, user_id=user_id), more=[(WITHDRAWN, b"")])

    async def decide(self, decision: Decide) -> None:
        await self._send("controls", decision)

    async def erase(self, scope: Scope) -> int:
        """Send an erasure. Returns its time in Kafka, Unix milliseconds; requests sent up to then are erased."""
        return (await self._send("controls", erase(scope.user_id, scope.conversation_id))).timestamp

    async def audit(self, report: Audit) -> None:
        """Send a report to the owner of the user's partition; raises `ApiError`."""
        await self._send("controls", report)

    async def reachable(self) -> bool:
        if self._producer is None:
            return False
        try:
            async with asyncio.timeout(_PROBE_S):
                return bool(await self._producer.client.force_metadata_update())
        except (KafkaError, OSError, TimeoutError):
            return False

    async def _send(
        self, topic: str, record: Record, on_written: Callable[[], None] = lambda: None, more: RecordHeaders = ()
    ) -> RecordMetadata:
        assert self._producer is not None, "the producer was not started"
        value, headers = encode(record, self._settings.wire_format)
        headers.extend((*trace_headers.get(), *more))
        try:
            async with asyncio.timeout(ANSWER_S):
                delivery = await self._producer.send(
                    self._settings.topic(topic), value, key=record.user_id.encode(), headers=headers
                )
                self._waiting[delivery] = record
                delivery.add_done_callback(lambda done: self._report_outcome(done, on_written))
                # The producer keeps a record whose caller is gone; only its outcome has to be observed.
                receipt: RecordMetadata = await asyncio.shield(delivery)
        except MessageSizeTooLargeError:
            raise ApiError(ErrorCode.INVALID_REQUEST, "the request is too large for Kafka", status=413) from None
        except TimeoutError:
            message = f"Kafka has not answered within {ANSWER_S:g} s; {_retry_hint(record)}"
            raise ApiError(ErrorCode.UNAVAILABLE, message, retry_after_s=ANSWER_S) from None
        except KafkaError as error:
            log.warning("Kafka rejects %s: %s", _described(record), error)
            raise ApiError(ErrorCode.UNAVAILABLE, "Kafka rejects requests now", retry_after_s=5) from None
        return receipt

    def _report_outcome(self, done: asyncio.Future[object], on_written: Callable[[], None]) -> None:
        """Log the outcome of a record, whether or not its caller still waits."""
        record = self._waiting.pop(done)
        if done.cancelled():
            return
        if error := done.exception():
            log.warning("%s was not written to Kafka; its sender got an error: %s", _described(record), error)
        else:
            on_written()


def _described(record: Record) -> str:
    about = f" {record.request_id}" if isinstance(record, Request | Cancel | Decide) else ""
    return f"{type(record).__name__.lower()}{about} of {record.user_id!r}"


def _retry_hint(record: Record) -> str:
    if isinstance(record, Request):
        again = "with this request_id, so that it is answered once"
        return f"the request may still be sent: retry {again} (request_id {record.request_id})"
    return "it may still be carried out: retry"
