"""Answer requests from their turn to their commit, and end what an unexpected error is about, and nothing else.

Errors that are expected end their request where they are understood, with a message of their own. Whatever else is
raised about one request arrives here: it is logged once, by type and place, the request ends with an `error` event, and
its record goes to `dead-letters` and is committed, so that nothing behind it waits. What may pass is a closed list
(app/delivery/escalation.py). The same for records that lead to no answer stands in `Partition._contain`.
"""

from __future__ import annotations

import logging
from contextlib import suppress

from app.answering.kept import Kept, commit_of, ended_row
from app.answering.pipeline import Answering, Pipeline
from app.answering.run import Asleep
from app.audit.records import audit_of_request
from app.delivery import dead_letters
from app.delivery.commits.commit import Commit
from app.delivery.escalation import ESCALATING
from app.delivery.inflight import InFlight, Outcome
from app.delivery.observer import Observer
from app.delivery.partition import Partition
from app.delivery.record import Outgoing, Record
from app.delivery.resume.answer_log import AnswerLog
from app.delivery.resume.tokens import EventRefusedError, EventTooLargeError
from app.wire.error import ErrorCode, WireError, shortened
from app.wire.event import ErrorInfo, EventType, TokenEvent
from models.interface.unexpected import type_and_line
from models.served.registry import ServedModel

log = logging.getLogger(__name__)


class Containment:
    """Answers the requests of one worker. Its methods raise only what escalates."""

    def __init__(self, pipeline: Pipeline, observer: Observer) -> None:
        self._pipeline = pipeline
        self._observer = observer

    async def answer(self, partition: Partition, inflight: InFlight) -> None:
        """Run the request to its commit; called when no earlier request of its conversation is open."""
        answering: Answering | None = None
        try:
            if inflight.accepted.key in partition.context.too_large:
                raise EventRefusedError
            answering = Answering(self._pipeline, partition, inflight)
            end = await answering.to_its_end()
            if end.type is EventType.DONE:
                for stage in answering.stages:
                    await stage.ended()
            now = inflight.accepted.time_of(partition.ownership.clock.now())
            commit = commit_of(answering.run, [stage.leave for stage in answering.stages], end, now)
        except ESCALATING:
            raise
        except Asleep as asleep:
            await self._let_sleep(partition, inflight, asleep)
        except Exception as error:  # noqa: BLE001 - of this request
            await self.end_contained(partition, inflight, error, answering)
        else:
            await self._commit(partition, inflight, end, commit, answering)

    async def _let_sleep(self, partition: Partition, inflight: InFlight, asleep: Asleep) -> None:
        """Nothing is awaited before the commit is put, and from then on the request is not in flight: its record may
        come again before the commit is confirmed.
        """
        partition.release(inflight)
        await partition.commit(asleep.commit, urgent=True)
        asleep.settle()
        self._observer.slept(partition.number, inflight)

    async def end_contained(
        self, partition: Partition, inflight: InFlight, error: Exception, answering: Answering | None = None
    ) -> None:
        """End a request about which something unexpected was raised."""
        try:
            end, commit = await self._contained(partition, inflight, error, answering)
        except ESCALATING:
            raise
        except Exception as again:  # noqa: BLE001 - of the same request: its record is all that is left
            record, end = inflight.accepted.record, _error_event(inflight, *_cause_of(error))
            commit = dead_letters.commit_of_unexpected(record, again, self._pipeline.settings)
            await partition.commit(commit.beside(self.refused(partition, record, end)))
            partition.release(inflight)
        else:
            await self._commit(partition, inflight, end, commit, answering)

    async def _contained(
        self, partition: Partition, inflight: InFlight, error: Exception, answering: Answering | None
    ) -> tuple[TokenEvent, Commit]:
        """Write the end of the answer, unless readers have one already; returns it with the commit."""
        log.warning(
            "partition %s: request %s ends, its worker goes on: %s",
            partition.number,
            inflight.key,
            type_and_line(error),
        )
        code, message = _cause_of(error)
        end = inflight.written_end
        if end is None:
            end = _error_event(inflight, code, message)
            token_log, record = partition.ownership.token_log, inflight.accepted.record
            await token_log.delivered([await token_log.send(end, record.key, inflight.trace_headers)])
            if inflight.answer is not None:
                await inflight.answer.send_beside(end)
                await inflight.answer.delivered()
        return end, self._letter(partition, inflight, end, WireError(code, message), answering)

    def _letter(
        self, partition: Partition, inflight: InFlight, end: TokenEvent, error: WireError, answering: Answering | None
    ) -> Commit:
        accepted = inflight.accepted
        now = accepted.time_of(partition.ownership.clock.now())
        letter = dead_letters.quiet_letter_of(accepted.record, error, self._pipeline.settings)
        kept = Kept(outputs=self.refused(partition, accepted.record, end) if answering is None else ())
        for stage in () if answering is None else answering.stages:
            with suppress(Exception):  # of the same request: another stage still leaves what it has to
                kept = stage.leave(kept)
        audit = audit_of_request(accepted, inflight.answer, end, now)
        return Commit(accepted.record, (*kept.changes, ended_row(accepted, now)), (*kept.outputs, letter), audit)

    def refused(self, partition: Partition, record: Record, end: TokenEvent) -> tuple[Outgoing, ...]:
        """What goes with the error of a request that has no stages; nothing if that, too, fails."""
        with suppress(Exception):
            return self._pipeline.features.refused(partition, record, end)
        return ()

    async def _commit(
        self, partition: Partition, inflight: InFlight, end: TokenEvent, commit: Commit, answering: Answering | None
    ) -> None:
        await partition.commit(commit, urgent=partition.lanes.has_queue(inflight.accepted.conversation))
        partition.release(inflight)
        for on_commit in inflight.on_commit:
            on_commit()
        stages, spent = ((), 0) if answering is None else (answering.stages, answering.run.spent)
        try:
            default = self._pipeline.models.default
            answer = inflight.answer or _unwritten(partition, inflight, default)
            outcome = Outcome(inflight=inflight, answer=answer, end=end, spent=spent)
            for stage in stages:
                stage.committed(outcome)
            self._observer.answered(partition.number, outcome)
        except Exception as error:  # noqa: BLE001 - the request is committed; what follows costs no other request
            log.warning("request %s is committed, but not reported whole: %s", inflight.key, type_and_line(error))


def _unwritten(partition: Partition, inflight: InFlight, default: ServedModel) -> AnswerLog:
    """The answer of a request that failed before it had one."""
    return AnswerLog(partition.ownership.token_log, inflight.accepted, inflight.trace_headers, None, default)


def _cause_of(error: Exception) -> tuple[ErrorCode, str]:
    if isinstance(error, EventTooLargeError):
        return ErrorCode.ENGINE_ERROR, f"a record of this answer is too large for Kafka: {error}"
    if isinstance(error, EventRefusedError):
        return ErrorCode.ENGINE_ERROR, "Kafka refuses a record of this answer for its size"
    return ErrorCode.ENGINE_ERROR, f"the service failed on this request ({type(error).__name__}); it is not tried again"


def _error_event(inflight: InFlight, code: ErrorCode, message: str) -> TokenEvent:
    index = inflight.accepted.former.position if inflight.answer is None else inflight.answer.index
    return inflight.accepted.event(EventType.ERROR, index, error=ErrorInfo(code, shortened(message)))
