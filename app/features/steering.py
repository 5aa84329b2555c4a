"""`while_busy` `steer`: a message goes into the answer that runs.

An answer with tools over Kafka reads its prompt again after each round of calls. Where it does, the later requests of
its conversation that steer stand in its lane. Each ends at once, as `done` without text, and its own commit writes its
words behind the results of that round: one transaction has the words, and that their request is over. The answer waits
for that commit, also when it is stopped meanwhile, so what it reads next is what a successor reads.

A request that is refused, filtered or forgotten adds nothing. One that was told by a former owner and finds no answer
to go into is remembered as a turn of its own, unless a later request rolls it back. Without a further round of an
answer, it is a request like any other.
"""

from __future__ import annotations

import asyncio
import dataclasses
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import msgspec

from app.answering.kept import Kept
from app.answering.run import Run
from app.answering.stage import Decide, Ending, Feature, Round, Stage
from app.delivery.accepted import RequestKey
from app.delivery.inflight import InFlight
from app.features.busy import ConversationOrder
from app.features.open_calls import OpenCalls
from app.wire.event import STEERED, Plan
from app.wire.request import Request, WhileBusy
from models.interface.generation import End, FinishReason, Usage
from tables.tool_calls import AddedWords, ToolRounds, fits

_MOST = 16
"""Words of so many requests go into one answer."""


@dataclass(eq=False, slots=True)
class SteeredAnswer:
    """The answer that gets the words, while it waits for them."""

    key: RequestKey
    calls: OpenCalls
    waits: bool = True


class Steering(Feature):
    def __init__(self, order: ConversationOrder | None = None) -> None:
        self.order = order or ConversationOrder()
        self._into: WeakKeyDictionary[InFlight, SteeredAnswer] = WeakKeyDictionary()

    @property
    def is_on(self) -> bool:
        return False

    def stage(self, run: Run) -> Stage | None:
        into = self._into.get(run.inflight)
        is_told = run.accepted.former.plan.steered is not None
        return Steered(run, self.order, into) if into is not None or is_told else None

    async def add_words(self, run: Run, calls: OpenCalls) -> None:
        """Add those of the later requests that wait in the lane now."""
        partition, mine = run.partition, run.accepted
        for one in partition.lanes.items(mine.conversation):
            run.check()
            former = one.accepted.former
            # It has begun as a request like any other, or begins alone and apart since owners have died with it.
            is_its_own = former.plan.steered is None and (former.is_admitted or one.attempts.lost > 0)
            if one is run.inflight or one.stop.reason is not None or is_its_own or not _steers(one.accepted.request):
                continue
            rounds = calls.decided(run.key)
            if rounds is None or not _has_room(rounds, one.accepted.request, run.answer.beside_bytes):
                return
            work = partition.lanes.withdraw(mine.conversation, one)
            if work is None:
                continue
            into = self._into[one] = SteeredAnswer(run.key, calls)
            left = asyncio.Event()
            one.on_leave.append(left.set)
            partition.spawn(work(), about=one.accepted.record)
            try:
                await left.wait()  # also if the answer is stopped: of two commits side by side one would lose its turn
            finally:
                into.waits = False


class Steered(Stage):
    """Of the request whose words go into another one's answer."""

    def __init__(self, run: Run, order: ConversationOrder, into: SteeredAnswer | None) -> None:
        super().__init__(run)
        self._order, self._into = order, into

    async def decide(self, plan: Plan, then: Decide) -> Plan:
        plan = await then(plan)
        return plan if self._into is None else msgspec.structs.replace(plan, steered=self._into.key[1])

    async def round(self, then: Round) -> Ending:
        del then
        into = self.run.answer.plan.steered
        await self.run.answer.notice(STEERED, "the message goes into the answer that runs", {"into": into})
        return End(0, FinishReason.STOP, Usage(0, 0))

    def leave(self, kept: Kept) -> Kept:
        end, into = self.run.answer.end or self.run.accepted.former.end, self._into
        if end is None or end.finish_reason is not FinishReason.STOP or kept.row is None:
            return kept
        rounds = into.calls.decided(into.key) if into is not None and into.waits else None
        if into is None or rounds is None:
            return dataclasses.replace(kept, row=None) if self._order.rolls_back(self.run.inflight) else kept
        change = into.calls.decide(into.key, rounds.with_words(_words_of(self.run.accepted.request)))
        return dataclasses.replace(kept, row=None).with_change(change)


def _steers(request: Request) -> bool:
    """Whether it brings words, and nothing else than words."""
    is_plain = request.prompt is not None and not request.raw and request.fork is None and request.store
    return request.while_busy is WhileBusy.STEER and is_plain


def _has_room(rounds: ToolRounds, request: Request, beside: int) -> bool:
    count = sum(len(one.words) for one in rounds.rounds)
    return count < _MOST and fits(rounds.with_words(_words_of(request)), beside)


def _words_of(request: Request) -> AddedWords:
    return AddedWords(request.request_id, request.prompt or "")
