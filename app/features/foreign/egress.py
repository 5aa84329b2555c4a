"""Answers on topics of others: a record of each end that an egress names, in the answer's own transaction.

The record is a projection of the turn as it stands on `turns`, so the guard, `store: false` and erasures hold for it as
they do there. An answer that has failed leaves no turn, and the record has its `error` instead. Like the turn, a
read_committed reader gets it exactly once. With `error` in `on`, a request that is refused before it has stages leaves
one, too (`refused`), and so does one of which Kafka rejects what it leads to (`Kept.instead`).

`per = "token"`: a record beside each event with tokens, and beside the end. Events are live, so they are in no
transaction, and nor are these records. Each is delivered before the request is committed, and the next owner of an
answer sends those of all its events again, under its own epoch: readers miss none, and by the epoch they know what
comes again (docs/foreign-records.md).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec

from app.answering.kept import Kept
from app.answering.run import Run
from app.answering.stage import Feature, Stage
from app.delivery.dead_letters import letter_of
from app.delivery.partition import Partition
from app.delivery.record import Outgoing, Record
from app.features.foreign.records import NOTHING, UnwritableError, failure, record_of_end, record_on
from app.foreign.formats import EgressTopic, foreign_topics
from app.foreign.passed import Passed, passed_of
from app.foreign.source import source_of
from app.policy.file import Policy
from app.wire.codec import trace_headers_of
from app.wire.error import ErrorCode, WireError
from app.wire.event import ErrorInfo, EventType, TokenEvent
from app.wire.ids import tenant_of

log = logging.getLogger(__name__)

_REJECTED = ErrorInfo(ErrorCode.ENGINE_ERROR, "Kafka rejects a record that this answer leads to")
_UNKEPT = ErrorInfo(ErrorCode.ENGINE_ERROR, "the answer has ended, and what it leaves cannot be kept")


class Egress(Feature):
    def __init__(self, policy: Policy) -> None:
        self._topics = foreign_topics(policy).egresses

    @property
    def is_on(self) -> bool:
        return bool(self._topics)

    def use(self, policy: Policy) -> None:
        self._topics = foreign_topics(policy).egresses

    def stage(self, run: Run) -> Stage | None:
        topics = self._of(run.accepted.record)
        if by_token := [one for one in topics if one.rules.per == "token"]:
            run.answer.go_beside(partial(_beside, by_token, run, _Asked(by_token, run)))
        by_answer = [one for one in topics if one.rules.per == "answer"]
        return Leaving(run, by_answer) if by_answer else None

    def refused(self, partition: Partition, record: Record, end: TokenEvent) -> Sequence[Outgoing]:
        topics = [one for one in self._of(record) if one.rules.tells_errors]
        if not topics:
            return ()
        clock, source = partition.ownership.clock, source_of(record.headers)
        asked_at = clock.time_of(record.timestamp if source is None else min(record.timestamp, source.timestamp))
        marks = partition.ownership.marks.of(end.user_id or "", end.conversation_id or "")
        rules = [one.rules for one in topics]
        passed = NOTHING if marks.forbid(asked_at, None) else passed_of(rules, record.headers, record.value)
        event = msgspec.structs.replace(end, epoch=partition.ownership.token_log.epoch)
        own = failure(event, tenant=tenant_of(end.user_id or ""), now=clock.now(), asked_at=asked_at)
        trace = trace_headers_of(record.headers)
        return [one for topic in topics for one in record_of_end(topic, record.key, own, passed, trace)]

    def _of(self, record: Record) -> list[EgressTopic]:
        """The topics that are told of this request."""
        source = source_of(record.headers)
        return [one for one in self._topics if one.rules.is_of(None if source is None else source.topic)]


class _Asked:
    """What is passed of the request to these topics, unless an erasure has reached it."""

    def __init__(self, topics: Sequence[EgressTopic], run: Run) -> None:
        record = run.accepted.record
        self._run = run
        self._passed = passed_of([one.rules for one in topics], record.headers, record.value)

    @property
    def passed(self) -> Passed:
        return NOTHING if self._passed == NOTHING or self._run.forgets else self._passed


def _beside(topics: Sequence[EgressTopic], run: Run, asked: _Asked, event: TokenEvent) -> list[Outgoing]:
    if event.type is not EventType.TOKEN and not event.is_end:
        return []
    key, trace, passed = run.accepted.record.key, run.inflight.trace_headers, asked.passed
    own: dict[str, Any] = msgspec.to_builtins(event)
    records: list[Outgoing] = []
    for one in topics:
        try:
            records.append(record_on(one, key, own, passed, trace))
        except UnwritableError as error:
            log.warning("request %s: it is left out: %s", run.key, error)
    return records


class Leaving(Stage):
    def __init__(self, run: Run, topics: Sequence[EgressTopic]) -> None:
        super().__init__(run)
        self._topics = topics
        self._asked = _Asked(topics, run)

    def leave(self, kept: Kept) -> Kept:
        record, trace, passed = self.run.accepted.record, self.run.inflight.trace_headers, self._asked.passed
        turn = None if kept.turn is None else msgspec.to_builtins(kept.turn)
        for topic in self._topics:
            error: ErrorInfo | None = None
            if turn is None:
                end = self.run.inflight.written_end
                error = _UNKEPT if end is None else end.error or _UNKEPT
            elif "done" in topic.rules.on:
                try:
                    kept = kept.with_output(record_on(topic, record.key, turn, passed, trace))
                except UnwritableError as unwritable:
                    refusal = WireError(unwritable.code, str(unwritable))
                    error = ErrorInfo(refusal.code, refusal.message)
                    kept = kept.with_output(letter_of(record, refusal, self.run.settings))
            if not topic.rules.tells_errors:
                continue
            of_end = partial(record_of_end, topic, record.key, passed=passed, headers=trace)
            kept = kept.with_outputs(
                () if error is None else of_end(own=self._failure(error)), instead=of_end(own=self._failure(_REJECTED))
            )
        return kept

    def _failure(self, error: ErrorInfo) -> dict[str, Any]:
        accepted = self.run.accepted
        event = TokenEvent(
            type=EventType.ERROR,
            request_id=accepted.request.request_id,
            user_id=accepted.request.user_id,
            conversation_id=accepted.request.conversation_id,
            index=self.run.answer.index,
            error=error,
        )
        now = accepted.time_of(self.run.partition.ownership.clock.now())
        return failure(event, tenant=accepted.request.tenant, now=now, asked_at=accepted.at)
