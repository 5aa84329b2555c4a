"""The agent on `requests`: a request from its record to its commit.

1. Decode the record into a request, or write a dead letter.
2. Wait for earlier requests of the same conversation.
3. Build the prompt from the conversation's history.
4. Run it in a batch on the engine, and write each token event as it comes.
5. Commit: the conversation's row, the turn, the ended id and the offset, in one transaction.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial

import msgspec

from agents.asking import PRIORITIES, job_of, left_of, prompt_of, serving_of
from agents.finishing import Refusal, finish_of, quarantine_of, refusal_of, refused_user
from app.delivery.answer_log import AnswerLog
from app.delivery.batches import Batches
from app.delivery.cancels import Cancels
from app.delivery.claim import Claim
from app.delivery.finish import Finish
from app.delivery.observer import Observer
from app.delivery.partition import Partition
from app.delivery.quarantine import MOST_ATTEMPTS, Isolation, lost_attempts
from app.delivery.record import Record
from app.delivery.said import RequestKey
from app.reader.answer import Answer
from app.settings import Settings
from app.wire.codec import decode_request
from app.wire.codes import ErrorCode
from app.wire.error import WireError
from app.wire.event import TokenEvent
from app.wire.headers import carried_by
from app.wire.validation import check_partition, validate_request
from models.generation import Delta, End, Engine, Failure, FinishReason, Job, Usage
from models.prompts import BuiltPrompt, PromptError, PromptTooLong
from models.serving import Serving, Servings
from tables import records
from tables.conversations import MemoryRules
from tables.expiry import mark_of
from tables.records import Conversation, Table

log = logging.getLogger(__name__)

_QUARANTINED = (
    f"{MOST_ATTEMPTS} workers in a row were lost while they ran this request before its next token; "
    "it is not tried again"
)

# Errors that the engine reports about one request. Any other exception is a failure of the engine itself.
TOLD = frozenset(
    {ErrorCode.INVALID_REQUEST, ErrorCode.PROMPT_TOO_LONG, ErrorCode.OVERLOADED, ErrorCode.MODEL_NOT_FOUND}
)


class Conversations:
    def __init__(
        self,
        settings: Settings,
        servings: Servings,
        rules: MemoryRules,
        batches: Batches,
        cancels: Cancels,
        observer: Observer,
    ) -> None:
        self._settings = settings
        self._servings = servings
        self._rules = rules
        self._batches = batches
        self._cancels = cancels
        self._observer = observer
        self._isolation = Isolation()

    def take(self, partition: Partition, record: Record) -> None:
        """Accept a new record: queue its request, or deal with a record that is not a valid request."""
        at = partition.own.clock.time_of(record.timestamp)
        try:
            request = decode_request(record.value, record.headers)
            validate_request(request, record.key, max_prompt_bytes=self._settings.max_prompt_bytes)
            check_partition(request, record.partition, self._settings.partitions)
        except WireError as error:
            self._refuse(partition, record, error, at)
            return
        # Nothing here reads the metadata, and as Python objects it takes many times its size in bytes.
        request = msgspec.structs.replace(request, metadata=None)
        claim = Claim(record, request, at, carried=carried_by(record.headers))
        if partition.own.known(claim.key, at):
            partition.spawn(partition.finish(Finish(record)))
            return
        self._admit(partition, claim)

    async def answer(self, partition: Partition, claim: Claim) -> None:
        """Run the request; called when no earlier request of its conversation is open."""
        claim.started_at = claim.time_of(partition.own.clock.now())
        conversation = self._conversation(partition, claim)
        serving = serving_of(claim, self._servings)
        answer = claim.answer = AnswerLog(partition.own.tokens, claim, serving or self._servings.default)
        if claim.attempt >= MOST_ATTEMPTS and not (claim.said and claim.said.end):
            end = await answer.error(ErrorCode.ENGINE_ERROR, _QUARANTINED)
            finish = quarantine_of(claim, _QUARANTINED, self._settings, partition.own.clock.now())
            log.error("partition %s: request %s is quarantined: %s", partition.number, claim.key, _QUARANTINED)
        else:
            end = (claim.said and claim.said.end) or await self._speak(partition, claim, conversation, answer, serving)
            kept = None if claim.forget_history else conversation
            now = claim.time_of(partition.own.clock.now())
            finish = finish_of(claim, answer, end, kept, self._rules, self._settings, now)
        await partition.finish(finish)
        partition.own.claims.pop(claim.key, None)
        partition.begun.pop(claim.key, None)
        claim.abandon()
        self._observer.answered(partition.number, claim, answer, end)
        for settle in claim.on_finish:
            settle()

    def _refuse(self, partition: Partition, record: Record, error: WireError, at: int) -> None:
        own = partition.own
        key = (refused_user(record, error), error.request_id or "")
        known = own.known(key, at)
        refusal = refusal_of(record, error, known=known, settings=self._settings, now=own.clock.now())
        said = own.said.answers.pop(key, None)
        told = said is not None and said.end is not None
        if refusal.event is not None:
            own.refused.add(key)  # a second request with this id is a duplicate from now on
        partition.spawn(self._tell(partition, record, key, refusal, told=told))

    async def _tell(
        self, partition: Partition, record: Record, key: RequestKey, refusal: Refusal, *, told: bool
    ) -> None:
        if refusal.event is not None and not told:
            await (await partition.own.tokens.send(refusal.event, record.key, carried_by(record.headers)))
        await partition.finish(refusal.finish)
        if refusal.event is not None:
            partition.own.refused.discard(key)
            self._observer.refused(record, refusal.event)

    def _admit(self, partition: Partition, claim: Claim) -> None:
        own = partition.own
        own.claims[claim.key] = claim
        self._recall(partition, claim)
        claim.forget = self._erased(partition, claim)
        if settle := self._cancels.take(claim.key):
            claim.cancelled = True
            claim.on_finish.append(settle)
        if settle or claim.forget:
            claim.stop = FinishReason.CANCELLED
        self._observer.admitted(partition.number, claim)
        claim.on_stop = partial(self._stop_waiting, partition, claim)
        left_s = left_of(claim, own.clock.now())
        over = left_s is not None and left_s <= 0
        if over:
            claim.stop = claim.stop or FinishReason.DEADLINE
        elif left_s is not None:
            claim.deadline_timer = asyncio.get_running_loop().call_later(left_s, claim.stop_with, FinishReason.DEADLINE)
        priority = PRIORITIES[claim.request.priority]
        partition.lanes.add(claim.conversation, claim, priority, claim.request.user_id)
        if over:
            self._stop_waiting(partition, claim, FinishReason.DEADLINE)

    def _recall(self, partition: Partition, claim: Claim) -> None:
        """What the log holds of the request if a former owner began it."""
        own = partition.own
        claim.replayed = own.is_replayed(claim.record)
        claim.said = own.said.answers.pop(claim.key, None)
        plan = own.said.plans.pop(claim.key, None)
        if plan is not None and plan.at is not None:
            claim.at = plan.at
            claim.planned = True
        begins_at = claim.said.position if claim.said else 0
        lost = lost_attempts(own.said.attempts.pop(claim.key, None), begins_at)
        claim.attempt = lost - 1 if lost and partition.begun.get(claim.key) == lost else lost

    def _stop_waiting(self, partition: Partition, claim: Claim, _reason: FinishReason) -> None:
        """Cancel a request that has not begun without waiting for its conversation."""
        if partition.lanes.withdraw(claim.conversation, claim):
            partition.spawn(self.answer(partition, claim))

    async def _speak(
        self,
        partition: Partition,
        claim: Claim,
        conversation: Conversation | None,
        answer: AnswerLog,
        serving: Serving | None,
    ) -> TokenEvent:
        """Write the answer, or the error that it ends with; returns its last event."""
        if claim.stop is not None:
            return await self._stopped(answer, claim.stop)
        if serving is None:
            return await self._nobody(claim, answer)
        if claim.at < claim.record.timestamp and not claim.planned:
            await answer.plan(claim.at)
        memory = self._rules.recall(conversation, claim.at) if claim.request.messages is None else ()
        claim.recalled = bool(memory)
        try:
            prompt = await prompt_of(claim, memory, serving, self._settings)
        except PromptTooLong as error:
            return await answer.error(ErrorCode.PROMPT_TOO_LONG, str(error))
        except PromptError as error:
            return await answer.error(ErrorCode.INVALID_REQUEST, str(error))
        answer.prompt_digest = prompt.digest
        if claim.said is not None and claim.said.segments:
            if not _same(claim.said, serving, prompt):
                return await answer.done(FinishReason.PARTIAL, Usage(len(prompt.ids), answer.index))
            await answer.resumed()
        job = job_of(claim, prompt, serving, self._settings)
        return await self._attempt(partition, claim, answer, serving.engine, job)

    async def _attempt(
        self, partition: Partition, claim: Claim, answer: AnswerLog, engine: Engine, job: Job
    ) -> TokenEvent:
        if not claim.replayed:
            return await self._generate(partition, claim, answer, engine, job)
        beginning = await self._isolation.enter(claim.attempt + 1)
        try:
            claim.attempt += 1
            partition.begun[claim.key] = claim.attempt
            await answer.attempt(claim.attempt)
            return await self._generate(partition, claim, answer, engine, job, beginning.leave)
        finally:
            beginning.leave()

    async def _generate(
        self,
        partition: Partition,
        claim: Claim,
        answer: AnswerLog,
        engine: Engine,
        job: Job,
        on_token: Callable[[], None] = lambda: None,
    ) -> TokenEvent:
        async with self._batches.stream(partition.number, engine, job, claim) as stream:
            async for event in stream:
                match event:
                    case Delta() if not answer.has_room_for(event):
                        return await answer.done(FinishReason.LENGTH, Usage(len(job.prompt), answer.index))
                    case Delta():
                        await answer.say(event)
                        on_token()
                    case End(reason=FinishReason.DEADLINE):
                        return await self._stopped(answer, FinishReason.DEADLINE, event)
                    case End():
                        return await answer.done(event.reason, event.usage, event.text)
                    case Failure(code=code) if code in TOLD:
                        return await answer.error(ErrorCode(code), event.message)
                    case Failure():
                        return await answer.error(ErrorCode.ENGINE_ERROR, event.message)
        return await answer.error(ErrorCode.ENGINE_ERROR, "the engine stopped without finishing the answer")

    async def _nobody(self, claim: Claim, answer: AnswerLog) -> TokenEvent:
        """No model has that name. If the model that began the answer is gone, the tokens that it wrote are kept."""
        if claim.said is not None and claim.said.segments:
            return await answer.done(FinishReason.PARTIAL, Usage(0, answer.index))
        return await answer.error(ErrorCode.MODEL_NOT_FOUND, f"this worker serves {', '.join(self._servings.names)}")

    async def _stopped(self, answer: AnswerLog, reason: FinishReason, end: End | None = None) -> TokenEvent:
        """End a request that was cancelled or is late; a deadline that passes before the first token is an error."""
        if reason is FinishReason.DEADLINE and answer.index == 0:
            return await answer.error(ErrorCode.DEADLINE_EXCEEDED, "the deadline passed before the answer began")
        if end is not None:
            return await answer.done(reason, end.usage, end.text)
        return await answer.done(reason, Usage(0, answer.index))

    def _conversation(self, partition: Partition, claim: Claim) -> Conversation | None:
        if claim.request.user_id in partition.own.erasing:
            return None
        raw = partition.own.store.get(Table.CONVERSATIONS, records.key(*claim.conversation))
        return None if raw is None else records.decode(raw, Conversation)

    def _erased(self, partition: Partition, claim: Claim) -> bool:
        """Whether nothing of the request may be kept: it was sent before its user was erased, or it began before the
        erasure was applied, so that tokens already written may quote what was erased.
        """
        if claim.at <= partition.own.erasing.get(claim.request.user_id, -1):
            return True
        mark = mark_of(partition.own.store, claim.request.user_id)
        if mark is None:
            return False
        first = claim.said.segments[0] if claim.said and claim.said.segments else None
        return claim.at <= mark.at or (first is not None and (first.timestamp or 0) <= mark.applied)


def _same(said: Answer, serving: Serving, prompt: BuiltPrompt) -> bool:
    """Whether generating again would give the same tokens: same model version and sampling settings."""
    first = said.segments[0]
    return (first.model_version, first.prompt_digest) == (serving.model_version, prompt.digest)
