"""Hide private values from models, the index and, with `redact`, from what is kept: `pii` of `[guard]`.

1. Before the prompt is built, find the values in the request, in turns that nothing has read yet, and, once the inner
   stages have decided, in turns that are recalled. They are part of the plan, so the next owner of the partition hides
   the same.
2. The mask: these values, and those that the rows of the conversation name. What the model reads has placeholders.
3. Do the same with the results of tools, before each further round.
4. Readers get the values back.
5. Before the commit, find the values in the whole turn: models write some that no text had, and a prompt may have gone
   on without a verdict. What was analyzed before is remembered. The turn's row names the values.

Without a verdict, or with more values than a plan can hold, a request ends as `filtered` (`on_failure = "closed"`), or
goes on with what is known. A new request for which the analyzer has no time is refused as `overloaded`, whatever the
rules say: others have caused that, not its texts.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import aclosing
from functools import partial

import msgspec

from app.answering.dialogue import Dialogue, beginning_of
from app.answering.kept import Kept
from app.answering.run import RequestRefused, Run
from app.answering.stage import Decide, Ending, Feature, Generate, Round, Stage
from app.delivery.accepted import Accepted, Former
from app.delivery.commits.commit import LostError
from app.delivery.partition import Partition, State
from app.features.guard.analyzer import AnalyzerError
from app.features.guard.fair_order import Asker, BusyError, Patience
from app.features.guard.guard import Guard, GuardChange
from app.features.guard.secret import ensure_secret, secret_of
from app.features.guard.stored import hide_stored
from app.features.guard.texts import (
    hidden,
    hidden_request,
    hidden_request_of,
    hidden_turn,
    size_of,
    texts_of_rounds,
    texts_of_turn,
    texts_to_read,
)
from app.policy.file import Policy
from app.policy.guard_rules import TOO_MANY, UNJUDGED
from app.private.mask import NO_MASK, Mask
from app.private.put_back import PutBack, Written
from app.private.value import PrivateValue
from app.process.off_loop import off_loop
from app.wire.error import ErrorCode
from app.wire.event import Plan
from app.wire.record_size import MAX_PRIVATE_BYTES, MAX_PRIVATE_VALUES
from app.wire.request import Request, Role
from app.wire.turn import Turn
from models.interface.chat import ChatMessage
from models.interface.generation import End, FinishReason, Job, StreamEvent
from tables.records import KeptTurn

log = logging.getLogger(__name__)

_VALUE_COST = 32
"""A placeholder takes as long as so many characters of a text."""
_REMOVED = "removed by the guard"


class Masking(Feature):
    """It has the guard, for moderation as well."""

    def __init__(self, guard: Guard) -> None:
        self.guard = guard

    @property
    def is_on(self) -> bool:
        return self.guard.rules.is_on

    async def prepare(self, policy: Policy) -> GuardChange | None:
        return await self.guard.prepare(policy)

    def forget(self, user_id: str) -> None:
        self.guard.forget(user_id)

    async def close(self) -> None:
        await self.guard.stop()

    def stage(self, run: Run) -> Stage | None:
        plan = run.accepted.former.plan
        is_on = self.is_on or plan.private is not None or plan.filtered is not None
        return Masked(run, self.guard) if is_on else None

    async def indexed(self, partition: Partition | None, turn: Turn) -> Turn | None:
        """The turn as it may be indexed; None if the partition has left. Raises `HideError`."""
        if partition is None or partition.state is not State.OWNED:
            return None
        if not self.guard.rules.masks:
            return turn
        try:
            secret = await ensure_secret(partition, self.guard.draw)
        except LostError:
            return None
        return await hide_stored(self.guard, turn, secret)


class Masked(Stage):
    """`_undecided`: the plan that is being made, and the turns that it is made for. `_values`: those that the turn may
    contain; None if nothing has read it.
    """

    def __init__(self, run: Run, guard: Guard) -> None:
        super().__init__(run)
        self._guard = guard
        self._undecided: tuple[Plan, Sequence[KeptTurn]] | None = None
        self._mask = NO_MASK
        self._request: tuple[Mask, Request] | None = None
        self._values: Mask | None = None
        self._kept = NO_MASK

    def is_decided(self, former: Former) -> bool:
        """With values that a former owner has detected, only turns that are recalled now are read. An answer that wakes
        is read as by the rules of now: they may be stricter than those under which it began.
        """
        is_read = former.has_begun and not self.run.accepted.is_waking
        return is_read or former.plan.filtered is not None

    async def decide(self, plan: Plan, then: Decide) -> Plan:
        run, rules = self.run, self._guard.rules
        is_new = not run.accepted.former.is_admitted
        if is_new and rules.reads_prompts and run.accepted.request.prompt_token_ids is not None:
            message = "prompt_token_ids: the guard of this service reads text only; send `prompt`"
            raise RequestRefused(ErrorCode.INVALID_REQUEST, message)
        if not rules.masks:
            return await then(plan)
        await ensure_secret(run.partition, self._guard.draw)
        _, memory = run.remembered()
        asker, former = asker_of(run.accepted), run.accepted.former.plan
        is_waking = run.accepted.is_waking
        if plan.private is None or is_waking:
            unread = [turn for turn in memory if turn.private is None]
            texts = await texts_to_read(run.accepted, run.answer.rounds, unread)
            plan = await self._with_values(plan, texts, past_values(memory), asker)
            if plan.filtered is not None:
                return plan
        self._undecided = plan, memory
        plan = await then(plan)
        self._undecided = None
        is_read = former.recalled is not None and not is_waking
        return plan if is_read else await self._with_values_of_recalled(plan, asker)

    async def _with_values_of_recalled(self, plan: Plan, asker: Asker) -> Plan:
        """The index has turns from before the policy, too."""
        if not plan.recalled:
            return plan
        texts = [text for turn in plan.recalled for text in (turn.prompt, turn.answer)]
        try:
            masked, is_whole = await self._find(plan, texts, (), asker)
        except (AnalyzerError, BusyError):
            is_whole = False
        return masked if is_whole else msgspec.structs.replace(plan, recalled=())  # the answer needs none

    async def round(self, then: Round) -> Ending:
        run, answer = self.run, self.run.answer
        if self._guard.rules.masks and answer.rounds.rounds and answer.index == answer.from_index:
            asker = asker_of(run.accepted, Patience.BEGUN)
            texts = texts_of_rounds(answer.rounds)
            await run.replan(await self._with_values(answer.plan, texts, past_values(run.memory), asker))
        return await then()

    async def see(self, dialogue: Dialogue) -> Dialogue:
        mask = await self._mask_now()
        if not mask:
            return dialogue
        if dialogue.request is not self.run.accepted.request:  # an earlier stage has changed it for this round
            request = hidden_request(dialogue.request, mask)
            return await hidden(dataclasses.replace(dialogue, request=request), mask)
        if self._request is None or self._request[0] is not mask:
            self._request = mask, await hidden_request_of(self.run.accepted, mask)
        return await hidden(dataclasses.replace(dialogue, request=self._request[1]), mask)

    def generate(self, job: Job, then: Generate) -> AsyncGenerator[StreamEvent, None]:
        return self._put_back(job, then) if self._mask else then(job)

    async def _put_back(self, job: Job, then: Generate) -> AsyncGenerator[StreamEvent, None]:
        request = self.run.accepted.request
        before = Written(
            beginning_of(request) + self.run.answer.text_of_round,
            self.run.answer.reasoning_of_round,
            self.run.answer.call_ends,
        )
        put_back = await off_loop(
            len(before.text) + len(before.reasoning), partial(PutBack, self._mask, before, in_json=request.wants_json)
        )
        async with aclosing(then(job)) as events:
            async for event in events:
                if isinstance(event, End) and event.reason is FinishReason.FILTERED:
                    yield event  # what is held back stays so
                    return
                for one in put_back.read(event):
                    yield one

    async def _with_values(self, plan: Plan, texts: Sequence[str], past: Sequence[PrivateValue], asker: Asker) -> Plan:
        """The plan with the values in these texts, as many as it can hold."""
        try:
            plan, is_whole = await self._find(plan, texts, past, asker)
        except AnalyzerError:
            return self._without_verdict(plan, UNJUDGED)
        except BusyError as error:
            raise RequestRefused(ErrorCode.OVERLOADED, str(error)) from None
        if is_whole:
            return plan
        log.warning("request %s has more private values than a plan can hold", self.run.key)
        return self._without_verdict(plan, TOO_MANY)

    def _without_verdict(self, plan: Plan, category: str) -> Plan:
        is_closed = self._guard.rules.on_failure == "closed"
        return msgspec.structs.replace(plan, filtered=category) if is_closed else plan

    async def _find(
        self, plan: Plan, texts: Sequence[str], past: Sequence[PrivateValue], asker: Asker
    ) -> tuple[Plan, bool]:
        """The plan with the values in these texts, and whether it can hold all of them; raises what `Guard.find`
        raises, and `Over`.
        """
        fresh = await self.run.unless_stopped(self._guard.find(texts, asker))
        if not fresh:
            return plan, True
        values = tuple(dict.fromkeys((*(plan.private or ()), *fresh)))
        most = _most_of(values, MAX_PRIVATE_VALUES - len({*past} - {*values}))
        return msgspec.structs.replace(plan, private=values[:most]), most == len(values)

    async def _mask_now(self) -> Mask:
        """The mask of the values that are known.

        What an answer has hidden of its request stands in its plan. Values of earlier turns are hidden by the rules of
        the worker at hand: one whose next owner hides them otherwise has another prompt, and ends as `partial`.
        """
        plan, memory = self._undecided or (self.run.answer.plan, self.run.memory)
        secret = secret_of(self.run.partition.ownership.store)
        if secret is None or not (self._guard.rules.masks or plan.private):
            self._mask = NO_MASK
            return NO_MASK
        values = tuple(dict.fromkeys((*(plan.private or ()), *past_values(memory))))
        if values != self._mask.values:
            self._mask = await self._mask_of(secret, values)
        return self._mask

    async def _mask_of(self, secret: bytes, values: Iterable[PrivateValue]) -> Mask:
        known = tuple(values)
        user_id = self.run.accepted.request.user_id
        return await off_loop(_VALUE_COST * len(known), partial(Mask, secret, user_id, known))

    async def ended(self) -> None:
        """Find the values of the turn."""
        run, guard = self.run, self._guard
        if not guard.rules.masks:
            return
        secret = await ensure_secret(run.partition, guard.draw)
        written = (run.answer.text, *filter(None, [run.answer.reasoning]))
        texts = [*await texts_to_read(run.accepted, run.answer.rounds), *written]
        values: tuple[PrivateValue, ...] | None
        try:
            values = await guard.find(texts, asker_of(run.accepted, Patience.BEGUN, "the turn of "))
        except AnalyzerError:
            values = None
        known = await self._mask_now()
        mask = await self._mask_of(secret, (*known.values, *(values or ())))
        is_whole = values is not None and _most_of(mask.values, MAX_PRIVATE_VALUES) == len(mask.values)
        self._values = mask if is_whole else None
        self._kept = mask if guard.rules.pii == "redact" else NO_MASK
        await off_loop(size_of(texts), partial(_read_ahead, mask, texts, is_kept=not self._kept))

    def leave(self, kept: Kept) -> Kept:
        """`private` names the values that are kept; with `redact` these are placeholders."""
        turn, row = kept.turn, kept.row
        if row is not None:
            row = hidden_turn(row, self._kept) if self._kept else row
            if self.run.answer.plan.filtered is not None:
                row = msgspec.structs.replace(row, steps=tuple(map(without_result, row.steps)))
            row = msgspec.structs.replace(row, private=self._values_in(texts_of_turn(row)))
        if turn is not None:
            prompt, answer = self._kept.hide(turn.prompt), self._kept.hide(turn.answer)
            turn = msgspec.structs.replace(
                turn,
                prompt=prompt,
                answer=answer,
                reasoning=None if turn.reasoning is None else self._kept.hide(turn.reasoning),
                tool_calls=tuple(
                    msgspec.structs.replace(call, arguments=self._kept.hide_json(call.arguments))
                    for call in turn.tool_calls or ()
                )
                or None,
                private=self._values_in((prompt, answer)),
            )
        return dataclasses.replace(kept, turn=turn, row=row)

    def _values_in(self, texts: Sequence[str]) -> tuple[PrivateValue, ...] | None:
        """The private values in these texts of the turn; None if nothing has read them."""
        if self._values is None:
            return None
        present = self._values.values_in(texts)
        return tuple(one for one in self._values.values if one.value in present)


def asker_of(accepted: Accepted, patience: Patience | None = None, about: str = "") -> Asker:
    """The asker on whose behalf the guard reads this request. A request that a former owner admitted is not new."""
    if patience is None:
        patience = Patience.BEGUN if accepted.former.is_admitted else Patience.NEW
    request = accepted.request
    return Asker(request.user_id, request.tenant or "", f"{about}request {accepted.key}", patience)


def past_values(memory: Sequence[KeptTurn]) -> tuple[PrivateValue, ...]:
    return tuple(value for turn in memory for value in turn.private or ())


def _most_of(values: Sequence[PrivateValue], most: int) -> int:
    """How many of the values may be kept together."""
    left = MAX_PRIVATE_BYTES
    for count, value in enumerate(values):
        left -= len(msgspec.json.encode(value)) + 1
        if count >= most or left < 0:
            return count
    return len(values)


def _read_ahead(mask: Mask, texts: Sequence[str], *, is_kept: bool) -> None:
    """What `leave` asks of long texts."""
    mask.values_in(texts if is_kept else [*map(mask.hide, texts)])


def without_result(message: ChatMessage) -> ChatMessage:
    """Later turns do not read results of tools because of which the guard may have ended the answer."""
    return dataclasses.replace(message, content=_REMOVED) if message.role == Role.TOOL else message
