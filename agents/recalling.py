"""Related older turns for a prompt: found in Milvus before the answer, decided once, and part of its plan.

1. Find, before the conversation is read. This takes at most the policy's budget, and an erasure may pass meanwhile.
2. Choose, in the same step that reads the conversation: not what it holds anyway, and nothing that was asked before
   the user's last erasure. The choice is written to `tokens` with its texts; the next owner finds it there.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import msgspec

from agents.off_loop import off_loop
from app.delivery.inflight import InFlightRequest
from app.delivery.partition import Partition
from app.policy.file import Policy
from app.search.query import Query
from app.search.related import RelatedTurns
from app.settings import Settings
from app.wire.event import PlanDetails, RecalledTurn
from app.wire.request import Request
from tables.records import Turn


class Recalling:
    """`related` is None in a worker without an embedder."""

    def __init__(self, settings: Settings, policy: Policy, related: RelatedTurns | None) -> None:
        self._settings = settings
        self._related = related
        self._rules = policy.recall

    def use(self, policy: Policy) -> None:
        self._rules = policy.recall

    async def find(self, partition: Partition, inflight: InFlightRequest) -> None:
        """Look for related turns, unless a former owner has decided or begun."""
        request = inflight.request
        count = self._count(request)
        if not count or not request.question or inflight.is_resumed or inflight.logged.recalled is not None:
            return
        inflight.related = ()
        if self._related is None:
            return
        ttl_ms = int(self._settings.index_ttl * 1000)
        query = Query(
            user_id=request.user_id,
            text=await off_loop(len(request.question), partial(inflight.mask.hide, request.question)),
            limit=2 * (count + self._settings.conversation_turns),  # a turn is two rows, and the last ones are left out
            since=partition.ownership.clock.now() - ttl_ms if ttl_ms else None,
            until=inflight.at,
            erased_at=max(0, erased_at(partition, request.user_id)),
        )
        inflight.related = tuple(await self._related.find(query, self._rules.budget_ms / 1000))

    def plan(self, partition: Partition, inflight: InFlightRequest, memory: Sequence[Turn]) -> PlanDetails:
        """The plan with the turns that are recalled."""
        if inflight.logged.recalled is not None:
            turns = inflight.logged.recalled
        elif inflight.related is not None:
            turns = self._chosen(inflight, inflight.related, memory)
        else:
            return inflight.plan
        erased = erased_at(partition, inflight.request.user_id)
        recalled = tuple(turn for turn in turns if turn.asked_at > erased)
        return msgspec.structs.replace(inflight.plan, recalled=recalled)

    def _chosen(
        self, inflight: InFlightRequest, related: Sequence[RecalledTurn], memory: Sequence[Turn]
    ) -> tuple[RecalledTurn, ...]:
        """In the order of time."""
        known = {inflight.request.request_id, *(turn.request_id for turn in memory)}
        others = [turn for turn in related if turn.request_id not in known]
        return tuple(sorted(others[: self._count(inflight.request)], key=lambda turn: turn.asked_at))

    def _count(self, request: Request) -> int:
        if request.recall is not None:
            return request.recall
        return self._rules.turns if request.prompt is not None and not request.raw else 0


def erased_at(partition: Partition, user_id: str) -> int:
    """When the user was last erased, Unix milliseconds; -1 for never."""
    mark = partition.ownership.mark_of(user_id)
    return -1 if mark is None else mark.at
