"""Hide private values from models, the index and, with `redact`, from what is kept. Only with `[guard]` in the policy.

1. Before the prompt is built, find the values in the request, in turns that nothing has looked at yet, and in related
   turns. They are part of the plan, so the next owner of the partition hides the same.
2. Build the mask: these values, and those that the rows of the conversation name. `prompt_of` and `job_of` use it.
3. Do the same with the results of tools, before each further round.
4. Before the commit, find the values in the whole turn: models write some that no text had, and a prompt may have gone
   on without a verdict. What was analyzed before is remembered. The turn's row names the values.

Without a verdict, a request ends as `filtered` (`on_failure = "closed"`), or goes on with what is known.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import msgspec

from agents.seen import seen_turn, texts_of_request, texts_of_rounds, texts_of_turn
from app.delivery.guard_secret import ensure_secret, secret_of
from app.delivery.inflight import InFlightRequest
from app.delivery.partition import Partition, State
from app.delivery.resume.answer_log import AnswerLog
from app.guard.analyzer import AnalyzerError
from app.guard.guard import Guard
from app.guard.hidden_turn import hidden_turn
from app.policy.guard_rules import UNJUDGED
from app.wire.request import Request, Role
from app.wire.turn import Turn as TurnOnWire
from models.chat import ChatMessage
from models.private.mask import NO_MASK, Mask
from models.private.value import PrivateValue
from tables.records import Turn

_REMOVED = "removed by the guard"


class Masking:
    def __init__(self, guard: Guard) -> None:
        self._guard = guard

    def unsupported(self, request: Request) -> str | None:
        """Why the guard cannot read this request."""
        if self._guard.rules.reads_prompts and request.prompt_token_ids is not None:
            return "prompt_token_ids: the guard of this service reads text only; send `prompt`"
        return None

    async def look(self, partition: Partition, inflight: InFlightRequest, memory: Sequence[Turn]) -> None:
        """Find the private values of the request, unless a former owner has decided or begun."""
        if not self._guard.rules.masks:
            return
        await ensure_secret(partition, self._guard.draw)
        is_decided = inflight.logged.private is not None or inflight.logged.filtered is not None
        if not inflight.is_resumed and not is_decided:
            unread = [text for turn in memory if turn.private is None for text in texts_of_turn(turn)]
            await self._add(inflight, [*texts_of_request(inflight.request), *unread])
        inflight.mask = self.mask_of(partition, inflight, memory)

    async def look_at_related(self, inflight: InFlightRequest) -> None:
        """Find the values in related turns: the index has turns from before the policy, too."""
        if not self._guard.rules.masks or not inflight.related:
            return
        texts = [text for turn in inflight.related for text in (turn.prompt, turn.answer)]
        try:
            await self._find(inflight, texts)
        except AnalyzerError:
            inflight.related = ()  # the answer needs none

    async def look_at_results(self, partition: Partition, inflight: InFlightRequest, answer: AnswerLog) -> None:
        """Find the values in the results of tools, unless the answer goes on behind them already."""
        if not self._guard.rules.masks or not inflight.rounds.rounds or answer.index != inflight.begin:
            return
        before = inflight.plan
        await self._add(inflight, texts_of_rounds(inflight.rounds))
        inflight.mask = self.mask_of(partition, inflight, inflight.memory)
        if inflight.plan != before:
            await answer.plan(inflight.plan)

    async def _add(self, inflight: InFlightRequest, texts: Sequence[str]) -> None:
        try:
            await self._find(inflight, texts)
        except AnalyzerError:
            if self._guard.rules.on_failure == "closed":
                inflight.plan = msgspec.structs.replace(inflight.plan, filtered=UNJUDGED)

    async def _find(self, inflight: InFlightRequest, texts: Sequence[str]) -> None:
        """Add the values in these texts to the plan; raises `AnalyzerError`."""
        found = await self._guard.find(texts, f"request {inflight.key}")
        if found:
            values = tuple(dict.fromkeys((*(inflight.plan.private or ()), *found)))
            inflight.plan = msgspec.structs.replace(inflight.plan, private=values)

    def mask_of(self, partition: Partition, inflight: InFlightRequest, memory: Sequence[Turn]) -> Mask:
        """The mask of the values that are known. An answer that has begun without a mask goes on without one."""
        secret = secret_of(partition.ownership.store)
        if secret is None or not (self._guard.rules.masks or inflight.plan.private):
            return NO_MASK
        past = (value for turn in memory for value in turn.private or ())
        return Mask(secret, inflight.request.user_id, (*(inflight.plan.private or ()), *past))

    async def settle(self, partition: Partition, inflight: InFlightRequest, answer: AnswerLog) -> None:
        """Decide what is kept of a turn that has ended: its `private` values, and the mask of its texts."""
        if not self._guard.rules.masks:
            return
        secret = await ensure_secret(partition, self._guard.draw)
        texts = [*texts_of_request(inflight.request), *texts_of_rounds(inflight.rounds), answer.text]
        values: tuple[PrivateValue, ...] | None
        try:
            values = await self._guard.find(texts, f"the turn of request {inflight.key}")
        except AnalyzerError:
            values = None
        mask = Mask(secret, inflight.request.user_id, (*inflight.mask.values, *(values or ())))
        if self._guard.rules.pii == "redact":
            inflight.redacts, inflight.kept = True, mask
        inflight.private = None if values is None else mask.values

    async def indexed(self, partition: Partition, turn: TurnOnWire) -> TurnOnWire | None:
        """The turn as it may be indexed; None if the partition has left. Raises `AnalyzerError`."""
        if not self._guard.rules.masks:
            return turn
        if partition.state is not State.OWNED:
            return None
        secret = await ensure_secret(partition, self._guard.draw)
        values = turn.private
        if values is None:
            values = await self._guard.find([turn.prompt, turn.answer], f"turn {turn.user_id}/{turn.request_id}")
        return hidden_turn(turn, secret, values)


def kept_turn(turn: Turn, inflight: InFlightRequest) -> Turn:
    """The turn as its row keeps it."""
    kept = seen_turn(turn, inflight.kept) if inflight.redacts else turn
    if inflight.plan.filtered is not None:
        kept = msgspec.structs.replace(kept, steps=tuple(map(without_result, kept.steps)))
    return msgspec.structs.replace(kept, private=private_in(inflight, texts_of_turn(kept)))


def private_in(inflight: InFlightRequest, texts: Sequence[str]) -> tuple[PrivateValue, ...] | None:
    """The private values in these texts of the turn; None if nothing has looked for them."""
    if inflight.private is None:
        return None
    whole = "\n".join(texts)
    return tuple(one for one in inflight.private if one.value in whole)


def without_result(message: ChatMessage) -> ChatMessage:
    """Later turns do not read results of tools because of which the guard may have ended the answer."""
    return dataclasses.replace(message, content=_REMOVED) if message.role == Role.TOOL else message
