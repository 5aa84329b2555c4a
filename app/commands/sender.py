"""Send lines as records of a topic, with many in flight."""

from __future__ import annotations

import asyncio
import sys
import time
from types import TracebackType
from typing import Any, Self

import click
import msgspec
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

from app.commands.open_answers import OpenAnswers
from app.commands.terminal import note
from app.kafka.clients import partitions_of, producer, start, stop
from app.process.printable import printable_json
from app.settings import Settings
from app.wire.codec import decode, encode, ignored_fields, unknown_fields
from app.wire.control import Control
from app.wire.error import ErrorCode, WireError
from app.wire.ids import new_request_id
from app.wire.request import Request
from app.wire.validation import validate_control, validate_request

_ON_THEIR_WAY = 1000
_PROGRESS_S = 0.2


class Sender:
    """Counts records that were sent and lines that were not, and reports why."""

    def __init__(self, settings: Settings, topic: str, answers: OpenAnswers | None = None) -> None:
        self._answers = answers
        self.sent = 0
        self.failed = 0
        self._settings = settings
        self._topic = topic
        self._producer: AIOKafkaProducer | None = None
        self._room = asyncio.Semaphore(_ON_THEIR_WAY)
        self._on_their_way: set[asyncio.Future[Any]] = set()
        self._reported_at = 0.0

    async def __aenter__(self) -> Self:
        cluster = self._settings.cluster
        await partitions_of(cluster, [self._settings.topic(self._topic)])
        self._producer = producer(cluster, linger_ms=2)
        await start(self._producer)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._on_their_way and error is None:
            await asyncio.wait(self._on_their_way)
        if self._producer is not None:
            await stop(self._producer)
        self._clear_progress()

    async def send(self, number: int, line: str) -> None:
        """Send one line; returns once there is room for the next."""
        assert self._producer is not None, "the sender was not started"
        try:
            record, value, headers = self._record(number, line)
        except WireError as error:
            self._refuse(number, error.message)
            return
        if self._answers is not None:
            await self._answers.expect(record)
        await self._room.acquire()
        try:
            key = record.user_id.encode()
            delivery = await self._producer.send(self._settings.topic(self._topic), value, key=key, headers=headers)
        except KafkaError as error:
            self._room.release()
            self._fail(number, str(error), record)
            return
        self._on_their_way.add(delivery)
        delivery.add_done_callback(lambda done: self._delivered(number, done, record))

    def _record(self, number: int, line: str) -> tuple[Any, bytes, Any]:
        """The record, its value and headers. Warns of a request's unknown fields, and passes them on in JSON."""
        raw = line.encode("utf-8", errors="surrogateescape")
        record: Any
        if self._topic == "controls":
            record = decode(Control, raw)
            validate_control(record, record.user_id.encode())
            names = msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
            if vain := unknown_fields(names, ("type", *record.__struct_encode_fields__)):
                # A misspelt conversation would erase everything of the user.
                raise WireError(ErrorCode.INVALID_REQUEST, f"{', '.join(vain)}: no field of this record")
        else:
            made, raw = _with_request_id(raw)
            record = decode(Request, raw)
            validate_request(record, record.user_id.encode(), max_prompt_bytes=self._settings.max_prompt_bytes)
            if vain := ignored_fields(raw, None):
                self._clear_progress()
                note(f"line {number}: {', '.join(vain)}: no field of a request, so it has no effect")
            if made is not None:
                click.echo(printable_json(msgspec.json.encode({"line": number, "request_id": made})))
        value, headers = encode(record, self._settings.wire_format)
        return record, raw.strip() if self._settings.wire_format == "json" else value, headers

    def _delivered(self, number: int, done: asyncio.Future[Any], record: Any) -> None:
        self._on_their_way.discard(done)
        self._room.release()
        if done.cancelled():
            self._fail(number, "given up", record)
        elif error := done.exception():
            self._fail(number, str(error) or type(error).__name__, record)
        else:
            self.sent += 1
            self._report_progress()

    def _fail(self, number: int, cause: str, record: Any) -> None:
        if self._answers is not None:
            self._answers.forget(record)
        self._refuse(number, cause)

    def _refuse(self, number: int, cause: str) -> None:
        self.failed += 1
        self._clear_progress()
        note(f"line {number} was not sent: {cause}")

    def _report_progress(self) -> None:
        if sys.stderr.isatty() and time.monotonic() - self._reported_at > _PROGRESS_S:
            self._reported_at = time.monotonic()
            click.echo(f"\r{self.sent} sent", nl=False, err=True)

    def _clear_progress(self) -> None:
        if self._reported_at:
            click.echo("\r\x1b[K", nl=False, err=True)
            self._reported_at = 0.0


def _with_request_id(raw: bytes) -> tuple[str | None, bytes]:
    """The id that was made, and the line with it."""
    try:
        record = msgspec.json.decode(raw)
    except (ValueError, RecursionError):
        return None, raw  # the request decoder reports the error
    if not isinstance(record, dict) or "request_id" in record:
        return None, raw
    made = new_request_id()
    return made, msgspec.json.encode({"request_id": made, **record})
