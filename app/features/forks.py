"""A conversation that begins as a copy of another one: the field `from` of a request.

The copy is a row of its own, written in one transaction before anything is decided about the answer, so that a
successor finds what was copied, whatever has become of the source since. It has the turns up to that of the request
that `from` names. With an index that one's question is asked again: its turn stands in the copy without its answer,
open, in the name of the new request, whose end replaces it there, as that of an answer that has slept.

An answer that begins at an index gets its first tokens as one event, as if the engine had drawn them; what follows is
generated as in an answer that is resumed: same prompt, seed and index, so the same tokens. A model that reads other
words in the ids than readers had goes on behind the text instead, in its own vocabulary, as after a fallback.

A fork waits for the end of the request that it names, if that was asked before it. One that leaves no turn leaves the
copy for what comes next, a second fork included. An erasure of a conversation reaches its copies (agents/controls.py);
one that comes while a copy is made deletes that.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncGenerator
from contextlib import aclosing

import msgspec

from app.answering.dialogue import Dialogue
from app.answering.kept import Kept
from app.answering.run import Over, RequestRefused, Run
from app.answering.stage import Decide, Feature, Generate, Stage
from app.delivery.commits.commit import Commit
from app.delivery.resume.answer_log import call_id
from app.wire.error import ErrorCode
from app.wire.event import Plan
from app.wire.request import Fork
from models.interface.generation import Delta, End, FinishReason, Job, StreamEvent, Usage
from models.served.registry import ServedModel
from tables import records
from tables.records import Conversation, KeptTurn, Origin, RowChange, Table
from tables.tool_calls import NO_ROUNDS


class Forks(Feature):
    """The copy: made before others read the conversation."""

    @property
    def is_on(self) -> bool:
        return False

    def stage(self, run: Run) -> Stage | None:
        fork = run.accepted.request.fork
        return None if fork is None else Copying(run, fork)


class Beginnings(Feature):
    """The first tokens: where the engine's own would come."""

    @property
    def is_on(self) -> bool:
        return False

    def stage(self, run: Run) -> Stage | None:
        fork = run.accepted.request.fork
        return None if fork is None or not fork.tokens else BegunElsewhere(run, fork, fork.tokens)


class Copying(Stage):
    def __init__(self, run: Run, fork: Fork) -> None:
        super().__init__(run)
        self._fork = fork
        self._source = (run.accepted.request.user_id, fork.conversation_id)

    async def decide(self, plan: Plan, then: Decide) -> Plan:
        await self._source_ended()
        row, queue = records.key(*self._source), self.run.partition.context.queue
        while row in queue.keys_of(Table.CONVERSATIONS):  # of an answer that falls asleep it is on its way
            await self.run.partition.commit(Commit(), urgent=True)
        self.run.check()  # nothing is copied into what is erased
        await self._copy()
        return await then(plan)

    async def _source_ended(self) -> None:
        """Wait for the request that the fork names, if it was asked before and is not over."""
        run, key = self.run, (self._source[0], self._fork.request_id)
        source = run.ownership.inflight_requests.get(key)
        if source is None or source.accepted.record.offset > run.accepted.record.offset:
            return
        left = asyncio.Event()
        source.on_leave.append(left.set)
        async with run.waiting():
            await run.unless_stopped(left.wait())

    async def _copy(self) -> None:
        """Write the copy, unless a former owner has."""
        run, marks = self.run, self.run.ownership.marks
        run.read_conversation()
        own, asked_at = run.conversation, run.accepted.at
        if own is None or own.origin is None or own.origin.by != run.accepted.request.request_id:
            if own is not None and _has_own_turns(own) and not run.rules.expired(own, asked_at):
                name = run.accepted.request.conversation_id
                raise _refused(f"conversation_id: {name} has turns already, and a fork begins a conversation")
            own = self._copied()
            await self._put(own)
        erased = {} if own.origin is None else own.origin.erased
        if any(marks.of(self._source[0], one).at > known for one, known in erased.items()):
            await self._put(None)
            raise self._is_gone()
        run.read_conversation()

    async def _put(self, conversation: Conversation | None) -> None:
        await self.run.partition.commit(Commit(None, (_row(self.run, conversation),)), urgent=True)

    def _copied(self) -> Conversation:
        run, fork, request = self.run, self._fork, self.run.accepted.request
        marks = run.ownership.marks.of(*self._source)
        raw = run.ownership.store.get(Table.CONVERSATIONS, records.key(*self._source))
        source = None if raw is None else records.decode_row(raw, Conversation)
        if source is None or marks.hide(source) or marks.cover(run.accepted.at):
            raise self._is_gone()
        turns = run.rules.visible(source, run.accepted.at, fork.request_id)
        if not turns:
            raise self._is_gone()
        copied = tuple(msgspec.structs.replace(turn, after="", open=False) for turn in turns)
        if fork.index is not None:
            copied = (*copied[:-1], *self._asked_again(copied[-1], fork.index))
        before = {} if source.origin is None else source.origin.erased
        erased = before | {fork.conversation_id: min(marks.at, before.get(fork.conversation_id, marks.at))}
        origin = Origin(
            by=request.request_id,
            at=run.accepted.at,
            sources=tuple(erased),
            turns=tuple(turn.request_id for turn in copied if not turn.open),
            known=tuple(erased.values()),
        )
        return Conversation(run.accepted.at, copied, run.marks.at, origin)

    def _asked_again(self, turn: KeptTurn, index: int) -> tuple[KeptTurn, ...]:
        """The turn without its answer, in the name of this request; none if that brings a question of its own."""
        request = self.run.accepted.request
        own = call_id(request.user_id, turn.request_id, 0)
        at = next((at for at, step in enumerate(turn.steps) if any(one.id == own for one in step.calls)), None)
        if at is None and turn.called_at is not None:  # the first call of a program's answer is no step of its turn
            at = 0
        if at is not None and at < len(turn.steps) - 1 and index > (turn.called_at or 0):
            raise _refused(
                f"from.index: at most {turn.called_at or 0}: behind that the answer of {turn.request_id} has called "
                "tools, whose results are no part of its tokens"
            )
        if request.prompt is not None:
            return ()
        asked = msgspec.structs.replace(
            turn, request_id=request.request_id, answer="", steps=turn.steps[:at], open=True, called_at=None
        )
        return (asked,)

    def _is_gone(self) -> RequestRefused:
        name, request_id = self._fork.conversation_id, self._fork.request_id
        return _refused(f"from: conversation {name} has no turn of {request_id}, or not any more")

    def leave(self, kept: Kept) -> Kept:
        """Without a turn, no open one is left; without memory, no copy either."""
        run, conversation = self.run, self.run.conversation
        if conversation is None or (kept.row is not None and not kept.is_empty):
            return kept
        turns = tuple(one for one in conversation.turns if one.request_id != run.key[1])
        is_kept = run.accepted.request.store or _has_own_turns(msgspec.structs.replace(conversation, turns=turns))
        if turns == conversation.turns and is_kept:
            return kept
        left = msgspec.structs.replace(conversation, turns=turns, erased_at=run.marks.at)
        return kept.with_change(_row(run, left if turns and is_kept else None))


class BegunElsewhere(Stage):
    def __init__(self, run: Run, fork: Fork, ids: tuple[int, ...]) -> None:
        super().__init__(run)
        self._fork, self._ids = fork, ids

    async def generate(self, job: Job, then: Generate) -> AsyncGenerator[StreamEvent, None]:
        answer, ids = self.run.answer, self._ids
        if not answer.index and not answer.rounds.rounds:
            begun = await self._begun(job)
            answer.continue_after(NO_ROUNDS)
            yield begun
            job = dataclasses.replace(job, generated=ids)
            if answer.plan.from_index is not None:
                job = await self._behind_text(job, begun.text)
        async with aclosing(then(job)) as events:
            async for event in events:
                yield event

    async def _begun(self, job: Job) -> Delta:
        """What readers get of the first tokens; decides whether the model goes on behind them or behind their text."""
        model, text, ids = self._model(), self._fork.text, self._ids
        begun = None if model.reads is None else model.reads(job, ids)
        if text is not None:
            text = (await self.run.see(Dialogue(self.run.accepted.request, written=text))).written
        if begun is not None and text in {None, begun.text}:
            return begun
        if text is None:
            raise _refused(f"from.text: is needed, because {model.model_version} has other ids for its words")
        await self.run.replan(msgspec.structs.replace(self.run.answer.plan, from_index=len(ids)))
        return Delta(0, ids, text)

    async def _behind_text(self, job: Job, text: str) -> Job:
        answer, model = self.run.answer, self._model()
        answer.inherit(await asyncio.to_thread(model.prompts.ids_of, text, job.reasoning))
        if job.max_tokens <= len(answer.generated):
            usage = Usage(len(job.prompt), len(answer.generated))
            raise Over(End(answer.index, FinishReason.LENGTH, usage))
        return dataclasses.replace(job, generated=answer.generated)

    def _model(self) -> ServedModel:
        model = self.run.model()
        assert model is not None, "`Retrying` has checked it"
        return model


def _has_own_turns(conversation: Conversation) -> bool:
    """Whether it has turns that are no copies."""
    copied = () if conversation.origin is None else conversation.origin.turns
    return any(turn.request_id not in copied for turn in conversation.turns)


def _row(run: Run, conversation: Conversation | None) -> RowChange:
    value = None if conversation is None else records.encode(conversation)
    return RowChange(Table.CONVERSATIONS, records.key(*run.accepted.conversation), value)


def _refused(message: str) -> RequestRefused:
    return RequestRefused(ErrorCode.INVALID_REQUEST, message)
