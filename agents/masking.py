"""Hide private values from models, the index and, with `redact`, from what is kept. Only with `[guard]` in the policy.

1. Before the prompt is built, find the values in the request, in turns that nothing has looked at yet, and in related
   turns. They are part of the plan, so the next owner of the partition hides the same.
2. Build the mask: these values, and those that the rows of the conversation name. `prompt_of` and `job_of` use it.
3. Do the same with the results of tools, before each further round.
4. Before the commit, find the values in the whole turn: models write some that no text had, and a prompt may have gone
   on without a verdict. What was analyzed before is remembered. The turn's row names the values.

Without a verdict, or with more values than a plan can hold, a request ends as `filtered` (`on_failure = "closed"`), or
goes on with what is known. A new request for which the analyzer has no time is refused as `overloaded`, whatever the
rules say: others have caused that, not its texts.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Iterable, Sequence
from functools import partial

import msgspec

from agents.off_loop import off_loop
from agents.seen import seen_turn, size_of, texts_of_rounds, texts_of_turn, texts_to_read
from app.delivery.commits.commit import LostError
from app.delivery.guard_secret import ensure_secret, secret_of
from app.delivery.inflight import InFlightRequest
from app.delivery.partition import Partition, State
from app.delivery.resume.answer_log import AnswerLog
from app.delivery.stop_handle import StoppedError
from app.guard.analyzer import AnalyzerError
from app.guard.guard import Guard
from app.guard.hidden_turn import hidden_turn
from app.guard.turns import Asker, BusyError, Patience
from app.policy.guard_rules import TOO_MANY, UNJUDGED
from app.policy.tenants import TenantRefusal
from app.wire.error import ErrorCode
from app.wire.limits import MAX_PRIVATE_BYTES, MAX_PRIVATE_VALUES
from app.wire.request import Request, Role
from app.wire.turn import Turn as TurnOnWire
from models.chat import ChatMessage
from models.private.mask import NO_MASK, Mask
from models.private.value import PrivateValue
from tables.records import Turn

log = logging.getLogger(__name__)

_VALUE_COST = 32
"""A placeholder takes as long as so many characters of a text."""
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
            texts = await texts_to_read(inflight, [turn for turn in memory if turn.private is None])
            try:
                await self._add(inflight, texts, past_values(memory), asker_of(inflight))
            except BusyError as error:
                inflight.refusal = TenantRefusal(ErrorCode.OVERLOADED, str(error))
                return
        inflight.mask = await self.mask_of(partition, inflight, memory)

    async def look_at_related(self, inflight: InFlightRequest) -> None:
        """Find the values in related turns: the index has turns from before the policy, too."""
        if not self._guard.rules.masks or not inflight.related:
            return
        texts = [text for turn in inflight.related for text in (turn.prompt, turn.answer)]
        try:
            await self._find(inflight, texts, (), asker_of(inflight))
        except (AnalyzerError, BusyError, _TooManyError):
            inflight.related = ()  # the answer needs none
        except StoppedError:
            return

    async def look_at_results(self, partition: Partition, inflight: InFlightRequest, answer: AnswerLog) -> None:
        """Find the values in the results of tools, unless the answer goes on behind them already."""
        if not self._guard.rules.masks or not inflight.rounds.rounds or answer.index != inflight.begin:
            return
        before = inflight.plan
        asker = asker_of(inflight, Patience.BEGUN)
        await self._add(inflight, texts_of_rounds(inflight.rounds), past_values(inflight.memory), asker)
        inflight.mask = await self.mask_of(partition, inflight, inflight.memory)
        if inflight.plan != before:
            await answer.plan(inflight.plan)

    async def _add(
        self, inflight: InFlightRequest, texts: Sequence[str], past: Sequence[PrivateValue], asker: Asker
    ) -> None:
        try:
            await self._find(inflight, texts, past, asker)
        except AnalyzerError:
            self._fail(inflight, UNJUDGED)
        except _TooManyError:
            log.warning("request %s has more private values than a plan can hold", inflight.key)
            self._fail(inflight, TOO_MANY)
        except StoppedError:
            return  # nothing will be generated

    def _fail(self, inflight: InFlightRequest, category: str) -> None:
        if self._guard.rules.on_failure == "closed":
            inflight.plan = msgspec.structs.replace(inflight.plan, filtered=category)

    async def _find(
        self, inflight: InFlightRequest, texts: Sequence[str], past: Sequence[PrivateValue], asker: Asker
    ) -> None:
        """Add the values in these texts to the plan, as many as it can hold; raises what `Guard.find` raises,
        `_TooManyError` and `StoppedError`.
        """
        found = await inflight.stop.run(self._guard.find(texts, asker))
        if not found:
            return
        values = tuple(dict.fromkeys((*(inflight.plan.private or ()), *found)))
        most = _most_of(values, MAX_PRIVATE_VALUES - len({*past} - {*values}))
        inflight.plan = msgspec.structs.replace(inflight.plan, private=values[:most])
        if most < len(values):
            raise _TooManyError

    async def mask_of(self, partition: Partition, inflight: InFlightRequest, memory: Sequence[Turn]) -> Mask:
        """The mask of the values that are known. An answer that has begun without a mask goes on without one."""
        secret = secret_of(partition.ownership.store)
        if secret is None or not (self._guard.rules.masks or inflight.plan.private):
            return NO_MASK
        values = dict.fromkeys((*(inflight.plan.private or ()), *past_values(memory)))
        if tuple(values) == inflight.mask.values:
            return inflight.mask
        return await _mask(secret, inflight, values)

    async def settle(self, partition: Partition, inflight: InFlightRequest, answer: AnswerLog) -> None:
        """Decide what is kept of a turn that has ended: its `private` values, and the mask of its texts."""
        if not self._guard.rules.masks:
            return
        secret = await ensure_secret(partition, self._guard.draw)
        texts = [*await texts_to_read(inflight), answer.text]
        values: tuple[PrivateValue, ...] | None
        try:
            values = await self._guard.find(texts, asker_of(inflight, Patience.BEGUN, "the turn of "))
        except AnalyzerError:
            values = None
        mask = await _mask(secret, inflight, (*inflight.mask.values, *(values or ())))
        if self._guard.rules.pii == "redact":
            inflight.redacts, inflight.kept = True, mask
        is_whole = values is not None and _most_of(mask.values, MAX_PRIVATE_VALUES) == len(mask.values)
        inflight.private = mask if is_whole else None
        await off_loop(size_of(texts), partial(_read_ahead, mask, texts, is_kept=not inflight.redacts))

    async def indexed(self, partition: Partition, turn: TurnOnWire) -> TurnOnWire | None:
        """The turn as it may be indexed; None if the partition has left. Raises `AnalyzerError`."""
        if not self._guard.rules.masks:
            return turn
        if partition.state is not State.OWNED:
            return None
        try:
            secret = await ensure_secret(partition, self._guard.draw)
        except LostError:
            return None
        values = turn.private
        if values is None:
            asker = Asker(
                turn.user_id, turn.tenant or "", f"turn {turn.user_id}/{turn.request_id}", Patience.BACKGROUND
            )
            values = await self._guard.find([turn.prompt, turn.answer], asker)
        return await off_loop(len(turn.prompt) + len(turn.answer), partial(hidden_turn, turn, secret, values))


class _TooManyError(Exception):
    """The request has more private values than its plan can hold."""


def asker_of(inflight: InFlightRequest, patience: Patience | None = None, about: str = "") -> Asker:
    """Who reads a text; a request that a former owner has admitted is not new."""
    if patience is None:
        patience = Patience.BEGUN if inflight.is_admitted else Patience.NEW
    request = inflight.request
    return Asker(request.user_id, request.tenant or "", f"{about}request {inflight.key}", patience)


def past_values(memory: Sequence[Turn]) -> tuple[PrivateValue, ...]:
    return tuple(value for turn in memory for value in turn.private or ())


def _most_of(values: Sequence[PrivateValue], most: int) -> int:
    """How many of the values may be kept together."""
    left = MAX_PRIVATE_BYTES
    for count, value in enumerate(values):
        left -= len(msgspec.json.encode(value)) + 1
        if count >= most or left < 0:
            return count
    return len(values)


async def _mask(secret: bytes, inflight: InFlightRequest, values: Iterable[PrivateValue]) -> Mask:
    known = tuple(values)
    return await off_loop(_VALUE_COST * len(known), partial(Mask, secret, inflight.request.user_id, known))


def _read_ahead(mask: Mask, texts: Sequence[str], *, is_kept: bool) -> None:
    """What the commit asks of long texts."""
    mask.values_in(texts if is_kept else [*map(mask.hide, texts)])


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
    found = inflight.private.values_in(texts)
    return tuple(one for one in inflight.private.values if one.value in found)


def without_result(message: ChatMessage) -> ChatMessage:
    """Later turns do not read results of tools because of which the guard may have ended the answer."""
    return dataclasses.replace(message, content=_REMOVED) if message.role == Role.TOOL else message
