"""What the record of an intake leads to: a request, or a dead letter and the records of those who are told of errors.

All of it goes into the transaction that moves the intake's offset behind the record (taking.py).
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from typing import Any

from app.delivery.dead_letters import error_of_unexpected, letter_of, quiet_letter_of
from app.delivery.escalation import ESCALATING
from app.delivery.record import REQUESTS, Outgoing, Record
from app.features.foreign.records import failure, record_of_end
from app.foreign.formats import IntakeTopic, fields_of, readable_fields
from app.foreign.mapping import named_in, request_of
from app.foreign.passed import Passed, smallest_values, source_headers, values_at
from app.foreign.source import ForeignSource
from app.kafka.broker_clock import BrokerClock
from app.settings import Settings
from app.wire.codec import trace_headers_of
from app.wire.error import ErrorCode, WireError
from app.wire.event import ErrorInfo, EventType, TokenEvent
from app.wire.ids import partition_for, tenant_of
from models.interface.unexpected import type_and_line

log = logging.getLogger(__name__)


class _TooOldError(WireError):
    pass


class IntakeRecords:
    """`schema_id`: of the first record that has become a request; those behind it have to have the same."""

    def __init__(self, settings: Settings, topic: IntakeTopic, clock: BrokerClock) -> None:
        self._settings = settings
        self._topic = topic
        self._clock = clock
        self._oldest_ms = settings.requests_retention_s * 1000 // 2
        horizon_s = settings.erased_horizon_s
        self._horizon_ms = math.inf if horizon_s is None else horizon_s * 1000
        self.schema_id: int | None = None

    def outputs_of(self, record: Record) -> list[Outgoing]:
        """The request made of the record, or what it leaves if it gives none."""
        try:
            return [self._request(record)]
        except _TooOldError as error:  # no copy of what may be erased
            return [letter_of(record, error, self._settings, most_bytes=0), *self._refusals(record, error, None)]
        except WireError as error:
            refused = error
        except ESCALATING:
            raise
        except Exception as error:  # noqa: BLE001 - of this record
            refused = error_of_unexpected(record, error)
        return [letter_of(record, refused, self._settings), *self._refusals(record, refused, record.value)]

    def rejected(self, record: Record, reason: str) -> tuple[list[Outgoing], list[Outgoing]]:
        """What is left of a record of which Kafka rejects what it leads to, and what if it rejects that, too."""
        error = WireError(ErrorCode.INVALID_REQUEST, f"Kafka rejects the request made of this record: {reason}")
        letter = quiet_letter_of(record, error, self._settings, most_bytes=0)
        return [letter, *self._refusals(record, error, record.value)], [letter]

    def _request(self, record: Record) -> Outgoing:
        record.check_readable()
        sent_at = self._clock.time_of(record.timestamp)
        if sent_at < self._clock.now() - self._horizon_ms:
            days = self._horizon_ms / 86_400_000
            message = f"the record is older than the {days:.0f} days for which erasures of users are remembered"
            raise _TooOldError(ErrorCode.INVALID_REQUEST, message)
        source = ForeignSource(record.topic, record.partition, record.offset, sent_at)
        most, rules = self._settings.max_prompt_bytes, self._topic.rules
        read = fields_of(self._topic.decode, record.value, self.schema_id)
        made = request_of(rules, read.fields, record.key, source, max_prompt_bytes=most)
        passed = source_headers(rules, read.fields, self._topic.paths, store=made.store)
        self.schema_id = self.schema_id if read.schema_id is None else read.schema_id
        return Outgoing(
            self._settings.topic(REQUESTS),
            made.user_id.encode(),
            made.value,
            [source.header, *passed, *trace_headers_of(record.headers)],
            partition=partition_for(made.user_id, self._settings.partitions),
            timestamp=max(sent_at, self._clock.now() - self._oldest_ms),
        )

    def _refusals(self, record: Record, error: WireError, value: bytes | None) -> list[Outgoing]:
        """What the readers of errors get. Whatever the record holds, its dead letter does not depend on this."""
        try:
            return self._error_records(record, error, value) if self._topic.refusals else []
        except ESCALATING:
            raise
        except Exception as unexpected:  # noqa: BLE001 - of this record
            place = f"{record.topic}[{record.partition}]@{record.offset}"
            log.warning("%s: its refusal is not told to others: %s", place, type_and_line(unexpected))
            return []

    def _error_records(self, record: Record, error: WireError, value: bytes | None) -> list[Outgoing]:
        topics, rules = self._topic.refusals, self._topic.rules
        now, sent_at = self._clock.now(), self._clock.time_of(record.timestamp)
        source = ForeignSource(record.topic, record.partition, record.offset, sent_at)
        fields, is_whole = self._readable(value)
        request_id, user_id = named_in(rules, fields, record.key, source, is_whole=is_whole)
        tenant = rules.tenant or tenant_of(user_id or "")
        event = TokenEvent(
            type=EventType.ERROR,
            request_id=request_id,
            user_id=user_id,
            index=0,
            error=ErrorInfo(error.code, error.message),
        )
        own = failure(event, tenant=tenant, now=now, asked_at=sent_at)
        passed = Passed(smallest_values(values_at(fields, self._topic.paths)))
        key, trace = (user_id or source.request_id).encode(), trace_headers_of(record.headers)
        return [one for topic in topics for one in record_of_end(topic, key, own, passed, trace)]

    def _readable(self, value: bytes | None) -> tuple[Mapping[str, Any], bool]:
        """The fields of a record as far as they can be read, and whether that is all of them."""
        try:
            return fields_of(self._topic.decode, value, self.schema_id).fields, True
        except WireError:
            return readable_fields(self._topic.rules, value), False
