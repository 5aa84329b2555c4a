"""End what an unexpected error is about, and nothing else.

Errors that are expected end their request where they are understood, with a message of their own. Whatever else is
raised about one request or record arrives here: it is logged once, by type and place, its request ends with an `error`
event, and its record goes to `dead-letters` and is committed, so that nothing behind it waits. What may pass is a
closed list (app/delivery/escalation.py).
"""

from __future__ import annotations

import logging

from agents.auditing import audit_of_request
from agents.outcomes import dead_letter_of, ended_rows
from app.delivery.commits.commit import Commit
from app.delivery.inflight import InFlightRequest
from app.delivery.partition import Partition
from app.delivery.record import Record
from app.delivery.resume.answer_log import AnswerLog
from app.delivery.resume.tokens import EventRefusedError, EventTooLargeError
from app.settings import Settings
from app.wire.error import ErrorCode, WireError
from app.wire.event import ErrorInfo, EventType, TokenEvent
from app.wire.limits import shortened
from models.registry import ModelRegistry
from models.unexpected import type_and_place

log = logging.getLogger(__name__)


class Containment:
    def __init__(self, settings: Settings, servings: ModelRegistry) -> None:
        self._settings = settings
        self._servings = servings

    def refusal(self, record: Record, error: Exception) -> WireError:
        """What to report of a record that raises something unexpected when it is read."""
        log.warning(
            "%s[%s]@%s cannot be read: %s", record.topic, record.partition, record.offset, type_and_place(error)
        )
        return WireError(ErrorCode.INVALID_REQUEST, f"the record cannot be read ({type(error).__name__})")

    def letter(self, record: Record, error: Exception) -> Commit:
        """The commit of a record of which nothing else is known."""
        return Commit(record, (), (dead_letter_of(record, self.refusal(record, error), self._settings),))

    async def end(self, partition: Partition, inflight: InFlightRequest, error: Exception) -> tuple[TokenEvent, Commit]:
        """Write the end of the answer, unless readers have one already; returns it with the commit."""
        log.warning(
            "partition %s: request %s ends, its worker goes on: %s",
            partition.number,
            inflight.key,
            type_and_place(error),
        )
        code, message = _cause_of(error)
        end = inflight.written_end
        if end is None:
            end = _error_event(inflight, code, message)
            tokens = partition.ownership.tokens
            await tokens.delivered([await tokens.send(end, inflight.record.key, inflight.trace_headers)])
        return end, self._commit(partition, inflight, end, WireError(code, message))

    def _commit(self, partition: Partition, inflight: InFlightRequest, end: TokenEvent, error: WireError) -> Commit:
        now = inflight.time_of(partition.ownership.clock.now())
        letter = dead_letter_of(inflight.record, error, self._settings)
        ended = ended_rows(inflight, now)
        try:
            inflight.answer = inflight.answer or AnswerLog(partition.ownership.tokens, inflight, self._servings.default)
            audit = audit_of_request(inflight, inflight.answer, end, now)
        except Exception as again:  # noqa: BLE001 - of the same request
            log.warning("request %s has no record on `audit`: %s", inflight.key, type_and_place(again))
            audit = ()
        return Commit(inflight.record, ended, (letter,), audit)


def _cause_of(error: Exception) -> tuple[ErrorCode, str]:
    if isinstance(error, EventTooLargeError):
        return ErrorCode.ENGINE_ERROR, f"a record of this answer is too large for Kafka: {error}"
    if isinstance(error, EventRefusedError):
        return ErrorCode.ENGINE_ERROR, "Kafka refuses a record of this answer for its size"
    return ErrorCode.ENGINE_ERROR, f"the service failed on this request ({type(error).__name__}); it is not tried again"


def _error_event(inflight: InFlightRequest, code: ErrorCode, message: str) -> TokenEvent:
    recovered = 0 if inflight.recovered is None else inflight.recovered.position
    return TokenEvent(
        type=EventType.ERROR,
        request_id=inflight.request.request_id,
        user_id=inflight.request.user_id,
        conversation_id=inflight.request.conversation_id,
        index=recovered if inflight.answer is None else inflight.answer.index,
        error=ErrorInfo(code, shortened(message)),
    )
