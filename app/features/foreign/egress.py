"""Answers on topics of others: a record for each answer that ended in `done`, in the answer's own transaction.

The record is a projection of the turn as it stands on `turns`, so the guard, `store: false` and erasures hold for it as
they do there. Like the turn, a read_committed reader gets it exactly once.

`per = "token"`: a record beside each event with tokens, and beside the end. Events are live, so they are in no
transaction, and nor are these records. Each is delivered before the request is committed, and the next owner of an
answer sends those of all its events again, under its own epoch: readers miss none, and by the epoch they know what
comes again (docs/foreign-records.md).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial

from app.answering.kept import Kept
from app.answering.run import Run
from app.answering.stage import Feature, Stage
from app.delivery.dead_letters import letter_of
from app.delivery.record import Outgoing
from app.foreign.mapping import record_of
from app.foreign.source import source_of
from app.policy.file import Policy
from app.policy.foreign import EgressRules
from app.wire.error import ErrorCode, WireError
from app.wire.event import EventType, TokenEvent
from app.wire.record_size import MAX_RECORD_BYTES

log = logging.getLogger(__name__)

_MOST_BYTES = MAX_RECORD_BYTES - (4 << 10)
"""Of a record's value; the rest is for key, headers and Kafka's framing."""


class Egress(Feature):
    def __init__(self, policy: Policy) -> None:
        self._rules = policy.egress

    @property
    def is_on(self) -> bool:
        return bool(self._rules)

    def use(self, policy: Policy) -> None:
        self._rules = policy.egress

    def stage(self, run: Run) -> Stage | None:
        if not self._rules:
            return None
        source = source_of(run.accepted.record.headers)
        topic = None if source is None else source.topic
        rules = [one for one in self._rules if one.intake is None or one.intake == topic]
        if by_token := [one for one in rules if one.per == "token"]:
            run.answer.go_beside(partial(_beside, by_token, run))
        by_answer = [one for one in rules if one.per == "answer"]
        return Leaving(run, by_answer) if by_answer else None


def _beside(rules: Sequence[EgressRules], run: Run, event: TokenEvent) -> list[Outgoing]:
    if event.type is not EventType.TOKEN and not event.is_end:
        return []
    key, trace, records = run.accepted.record.key, run.inflight.trace_headers, []
    for one in rules:
        value = record_of(one, event)
        if len(value) <= _MOST_BYTES:
            records.append(Outgoing(one.topic, key, value, trace, by_key=True))
        else:
            log.warning(
                "request %s: a record on %s would have %d bytes; it is left out", run.key, one.topic, len(value)
            )
    return records


class Leaving(Stage):
    def __init__(self, run: Run, rules: Sequence[EgressRules]) -> None:
        super().__init__(run)
        self._rules = rules

    def leave(self, kept: Kept) -> Kept:
        if kept.turn is None:
            return kept
        record, trace = self.run.accepted.record, self.run.inflight.trace_headers
        for rules in self._rules:
            value = record_of(rules, kept.turn)
            if len(value) <= _MOST_BYTES:
                kept = kept.with_output(Outgoing(rules.topic, record.key, value, trace, by_key=True))
            else:
                message = f"the record on {rules.topic} would have {len(value)} bytes, and has room for {_MOST_BYTES}"
                error = WireError(ErrorCode.PROMPT_TOO_LONG, message)
                kept = kept.with_output(letter_of(record, error, self.run.settings))
        return kept
