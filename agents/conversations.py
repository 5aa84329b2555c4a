"""The agent on `requests`: a request from its record to its commit.

1. Decode the record into a request, or write a dead letter.
2. Wait for earlier requests of the same conversation.
3. Decide which model answers, and build the prompt from the conversation's history.
4. Run it in a batch on the engine, and write each token event as it comes. With tools over Kafka, an answer that ends
   in calls waits for their results, and goes on with 3 (answering.py, tool_rounds.py).
5. Commit: the conversation's row, the turn, the ended id and the offset, in one transaction.
"""

from __future__ import annotations

import logging
from functools import partial

import msgspec

from agents.answering import Answering
from agents.charging import Charging
from agents.comparing import Comparing
from agents.containment import Containment
from agents.decisions import Decisions
from agents.jobs import PRIORITIES, left_of, serving_of
from agents.outcomes import Refusal, commit_of, memory_of, quarantine_of, refusal_of, refused_user
from app.delivery.cancels import Cancels
from app.delivery.commits.commit import Commit
from app.delivery.escalation import ESCALATING
from app.delivery.inflight import InFlightRequest
from app.delivery.observer import Observer
from app.delivery.partition import Partition
from app.delivery.record import Record
from app.delivery.resume.answer_log import AnswerLog
from app.delivery.resume.attempts import Attempts
from app.delivery.resume.quarantine import MOST_ATTEMPTS, lost_attempts
from app.delivery.resume.recovery import RequestKey
from app.delivery.resume.tokens import EventRefusedError
from app.policy.tenants import with_tenant
from app.settings import Settings
from app.wire.codec import decode
from app.wire.error import ErrorCode, WireError
from app.wire.event import EventType, TokenEvent
from app.wire.headers import trace_headers_of
from app.wire.request import Request
from app.wire.tools import ToolMode
from app.wire.validation import check_partition, validate_request
from models.generation import FinishReason
from models.registry import ModelRegistry
from models.unexpected import type_and_place
from tables import records
from tables.conversations import MemoryRules
from tables.records import Conversation, Table, Turn
from tables.tool_calls import ToolRounds

log = logging.getLogger(__name__)

_QUARANTINED = (
    f"{MOST_ATTEMPTS} workers in a row were lost while they ran this request before its next token; "
    "it is not tried again"
)


class Conversations:
    def __init__(
        self,
        settings: Settings,
        servings: ModelRegistry,
        rules: MemoryRules,
        cancels: Cancels,
        observer: Observer,
        decisions: Decisions,
        charging: Charging,
        answering: Answering,
        comparing: Comparing,
        attempts: Attempts,
        containment: Containment,
    ) -> None:
        self._attempts = attempts
        self._containment = containment
        self._charging = charging
        self._decisions = decisions
        self._settings = settings
        self._servings = servings
        self._rules = rules
        self._cancels = cancels
        self._observer = observer
        self._answering = answering
        self._comparing = comparing

    def handle(self, partition: Partition, record: Record) -> None:
        """Accept a new record: queue its request, or deal with a record that is not a valid request."""
        at = partition.ownership.clock.time_of(record.timestamp)
        try:
            request = self._read(record)
        except WireError as error:
            self._refuse(partition, record, error, at)
            return
        inflight = InFlightRequest(record, request, at, trace_headers=trace_headers_of(record.headers))
        if partition.ownership.known(inflight.key, at):
            partition.spawn(partition.commit(Commit(record)))
            return
        try:
            self._admit(partition, inflight)
        except ESCALATING:
            raise
        except Exception as error:  # noqa: BLE001 - of this request
            partition.lanes.withdraw(inflight.conversation, inflight)
            partition.spawn(self._end_contained(partition, inflight, error))

    def _read(self, record: Record) -> Request:
        """The valid request in the record; raises `WireError`."""
        try:
            record.check_readable()
            request = decode(Request, record.value, record.headers)
            validate_request(request, record.key, max_prompt_bytes=self._settings.max_prompt_bytes)
            check_partition(request, record.partition, self._settings.partitions)
            request = with_tenant(request)
        except WireError:
            raise
        except Exception as error:  # noqa: BLE001 - of this record
            raise self._containment.refusal(record, error) from None
        # Nothing here reads the metadata, and as Python objects it takes many times its size in bytes.
        return msgspec.structs.replace(request, metadata=None)

    def has_begun(self, partition: Partition, record: Record) -> bool:
        """Whether a former owner has begun the request of this record, or it is no request at all."""
        if not partition.ownership.is_replayed(record):
            return False
        try:
            request = decode(Request, record.value, record.headers)
        except WireError:
            return True
        return partition.ownership.recovered.has((request.user_id, request.request_id))

    async def answer(self, partition: Partition, inflight: InFlightRequest) -> None:
        """Run the request; called when no earlier request of its conversation is open."""
        try:
            end, commit = await self._answer(partition, inflight)
        except ESCALATING:
            raise
        except Exception as error:  # noqa: BLE001 - of this request
            await self._end_contained(partition, inflight, error)
        else:
            await self._commit(partition, inflight, end, commit)

    async def _end_contained(self, partition: Partition, inflight: InFlightRequest, error: Exception) -> None:
        try:
            end, commit = await self._containment.end(partition, inflight, error)
        except ESCALATING:
            raise
        except Exception as again:  # noqa: BLE001 - of the same request: its record is all that is left
            await partition.commit(self._containment.letter(inflight.record, again))
            partition.ownership.inflight_requests.pop(inflight.key, None)
            inflight.abandon()
        else:
            await self._commit(partition, inflight, end, commit)

    async def _answer(self, partition: Partition, inflight: InFlightRequest) -> tuple[TokenEvent, Commit]:
        """Write the answer, and return its end with what it leaves behind."""
        if inflight.key in partition.context.refused:
            raise EventRefusedError
        index = 0 if inflight.recovered is None else inflight.recovered.position
        if self._is_open(inflight):
            await self._attempts.begin(partition, inflight, index)
        inflight.timeline.started = inflight.time_of(partition.ownership.clock.now()) * 1_000_000
        if self._is_open(inflight) and self._answering.may_look(inflight):
            tokens = await self._decisions.planner.count_long(inflight.request)
            inflight.plan = self._decisions.planner.plan(inflight, tokens)
            self._answering.admit(partition, inflight)
            await self._look(partition, inflight)
        if not self._is_open(inflight):  # it may have been stopped meanwhile
            inflight.plan = inflight.logged
        memory = self._memory(inflight, self._conversation(partition, inflight))
        inflight.mask = await self._decisions.masking.mask_of(partition, inflight, memory)
        conversation = self._conversation(partition, inflight)  # an erasure may have passed
        if inflight.request.tool_mode is ToolMode.KAFKA:
            inflight.made = partition.ownership.calls.committed(inflight.key) or ToolRounds(inflight.at)
            inflight.rounds = inflight.made
        serving = serving_of(inflight, self._servings)
        answer = inflight.answer = AnswerLog(partition.ownership.tokens, inflight, serving or self._servings.default)
        if serving is None:
            answer.keep_author()
        if inflight.lost_attempts >= MOST_ATTEMPTS and not (inflight.recovered and inflight.recovered.end):
            end = await answer.error(ErrorCode.ENGINE_ERROR, _QUARANTINED)
            commit = quarantine_of(inflight, answer, end, _QUARANTINED, self._settings, partition.ownership.clock.now())
            log.error("partition %s: request %s is quarantined: %s", partition.number, inflight.key, _QUARANTINED)
        else:
            end = (inflight.recovered and inflight.recovered.end) or await self._answering.speak(
                partition, inflight, conversation, answer, serving
            )
            if end.type is EventType.DONE:
                await self._decisions.masking.settle(partition, inflight, answer)
            kept = None if inflight.forget_history else conversation
            now = inflight.time_of(partition.ownership.clock.now())
            mark = partition.ownership.mark_of(inflight.request.user_id)
            erased_at = 0 if mark is None else mark.at
            commit = commit_of(inflight, answer, end, kept, self._rules, self._settings, now, erased_at)
        return end, commit

    async def _commit(self, partition: Partition, inflight: InFlightRequest, end: TokenEvent, commit: Commit) -> None:
        await partition.commit(commit, urgent=partition.lanes.has_queue(inflight.conversation))
        partition.ownership.inflight_requests.pop(inflight.key, None)
        partition.ownership.calls.forget(inflight.key)
        partition.begun.pop(inflight.key, None)
        partition.context.refused.discard(inflight.key)
        inflight.abandon()
        for settle in inflight.on_commit:
            settle()
        try:
            self._charging.charge(inflight, end)
            self._comparing.begin(partition, inflight, end)
            if inflight.answer is not None:
                self._observer.answered(partition.number, inflight, inflight.answer, end)
        except Exception as error:  # noqa: BLE001 - the request is committed; what follows must cost nobody anything
            log.warning("request %s is committed, but not reported whole: %s", inflight.key, type_and_place(error))

    async def _look(self, partition: Partition, inflight: InFlightRequest) -> None:
        """Let the guard read the request, and find what it recalls, unless it is refused."""
        if inflight.refusal is None:
            memory = self._memory(inflight, self._conversation(partition, inflight))
            await self._decisions.masking.look(partition, inflight, memory)
        if inflight.refusal is None:
            await self._decisions.moderating.look(inflight)
        if inflight.refusal is None and inflight.plan.filtered is None:
            await self._decisions.recalling.find(partition, inflight)
            await self._decisions.masking.look_at_related(inflight)

    @staticmethod
    def _is_open(inflight: InFlightRequest) -> bool:
        """Whether anything of the answer may still be generated."""
        has_end = inflight.recovered is not None and inflight.recovered.end is not None
        return not has_end and inflight.stop.reason is None and inflight.lost_attempts < MOST_ATTEMPTS

    def _refuse(self, partition: Partition, record: Record, error: WireError, at: int) -> None:
        ownership = partition.ownership
        key = (refused_user(record, error), error.request_id or "")
        known = ownership.known(key, at)
        refusal = refusal_of(record, error, known=known, settings=self._settings, now=ownership.clock.now())
        recovered = ownership.recovered.answers.pop(key, None)
        is_reported = recovered is not None and recovered.end is not None
        if refusal.event is not None:
            ownership.refused.add(key)  # a second request with this id is a duplicate from now on
        partition.spawn(self._report_refusal(partition, record, key, refusal, is_reported=is_reported), about=record)

    async def _report_refusal(
        self, partition: Partition, record: Record, key: RequestKey, refusal: Refusal, *, is_reported: bool
    ) -> None:
        if refusal.event is not None and not is_reported:
            await (await partition.ownership.tokens.send(refusal.event, record.key, trace_headers_of(record.headers)))
        await partition.commit(refusal.commit)
        if refusal.event is not None:
            partition.ownership.refused.discard(key)
            self._observer.refused(record, refusal.event)

    def _admit(self, partition: Partition, inflight: InFlightRequest) -> None:
        ownership = partition.ownership
        ownership.inflight_requests[inflight.key] = inflight
        self._recall(partition, inflight)
        inflight.forget = self._erased(partition, inflight)
        if settle := self._cancels.pop(inflight.key):
            inflight.stop.is_cancelled = True
            inflight.on_commit.append(settle)
        if settle or inflight.forget:
            inflight.stop.now(FinishReason.CANCELLED)
        self._observer.admitted(partition.number, inflight)
        left_s = left_of(inflight, ownership.clock.now())
        if left_s is not None and left_s <= 0:
            inflight.stop.now(FinishReason.DEADLINE)
        elif left_s is not None:
            inflight.stop.after(left_s, FinishReason.DEADLINE)
        inflight.stop.listen(partial(self._end_soon, partition, inflight))
        priority = PRIORITIES[inflight.request.priority]
        partition.lanes.add(inflight.conversation, inflight, priority, inflight.request.user_id)
        front = partition.lanes.front(inflight.conversation)
        if front is not None and front is not inflight and front.is_committing:
            partition.context.queue.hurry()
        if inflight.stop.reason is not None:
            self._end_soon(partition, inflight, inflight.stop.reason)

    def _recall(self, partition: Partition, inflight: InFlightRequest) -> None:
        """What the log holds of the request if a former owner began it."""
        ownership = partition.ownership
        inflight.replayed = ownership.is_replayed(inflight.record)
        inflight.recovered = ownership.recovered.answers.pop(inflight.key, None)
        plan = ownership.recovered.plans.pop(inflight.key, None)
        if plan is not None:
            inflight.logged = inflight.plan = plan
            inflight.at = inflight.at if plan.at is None else plan.at
        begins_at = inflight.recovered.position if inflight.recovered else 0
        last = ownership.recovered.attempts.pop(inflight.key, None)
        lost = lost_attempts(last, begins_at)
        inflight.lost_attempts = lost - 1 if lost and partition.begun.get(inflight.key) == lost else lost
        inflight.attempts_from, inflight.lost_at = begins_at, 0 if last is None else last.at

    def _end_soon(self, partition: Partition, inflight: InFlightRequest, _reason: FinishReason) -> None:
        """A request that is stopped in its queue ends after those before it, so that `turns` keep the order of the
        conversation, but waits for no slot: no model reads it.
        """
        partition.lanes.hurry(inflight.conversation, inflight)

    def _conversation(self, partition: Partition, inflight: InFlightRequest) -> Conversation | None:
        """What is remembered of the conversation; rows that an erasure has not deleted yet count as deleted."""
        raw = partition.ownership.store.get(Table.CONVERSATIONS, records.key(*inflight.conversation))
        conversation = None if raw is None else records.decode_row(raw, Conversation)
        mark = partition.ownership.mark_of(inflight.request.user_id)
        is_hidden = conversation is not None and mark is not None and mark.hides(conversation)
        return None if is_hidden else conversation

    def _memory(self, inflight: InFlightRequest, conversation: Conversation | None) -> tuple[Turn, ...]:
        return memory_of(inflight, conversation, self._rules)

    def _erased(self, partition: Partition, inflight: InFlightRequest) -> bool:
        """Whether nothing of the request may be kept: it was sent before its user was erased, or it began before the
        erasure was applied, so that tokens already written may quote what was erased.
        """
        mark = partition.ownership.mark_of(inflight.request.user_id)
        if mark is None:
            return False
        first = inflight.recovered.segments[0] if inflight.recovered and inflight.recovered.segments else None
        return inflight.at <= mark.at or (first is not None and (first.timestamp or 0) <= mark.applied)
