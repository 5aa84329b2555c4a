"""Related older turns for a prompt: `[recall]` of the policy, or `recall` of the request.

1. Find them in Milvus, before the conversation is read. This takes at most the policy's budget, and an erasure may pass
   meanwhile.
2. Choose, in the same step that reads the conversation: not what it holds anyway, and nothing that was erased, with
   its user or its conversation. The choice is written to `tokens` with its texts; the next owner has it from there.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from app.answering.dialogue import Dialogue
from app.answering.run import Run
from app.answering.stage import Decide, Feature, Stage
from app.delivery.accepted import Former
from app.features.answer_steps import tell_retrieval
from app.features.host import WorkerParts
from app.features.recall.erased import without_erased
from app.features.recall.related import RecallStats, RelatedTurns
from app.policy.file import Policy
from app.search.vector_store import Query
from app.settings import Settings
from app.wire.event import Plan, RecalledTurn
from app.wire.request import Request
from tables.records import KeptTurn


class Recall(Feature):
    """`related` is None in a worker without an embedder."""

    def __init__(self, settings: Settings, policy: Policy, related: RelatedTurns | None) -> None:
        self.settings, self.related, self.rules = settings, related, policy.recall

    @classmethod
    def of(cls, host: WorkerParts) -> Recall:
        """Its connection is its own: the index writer's may be waiting for a server that hangs."""
        related = None if host.embedder is None else RelatedTurns(host.open_vectors(host.settings), host.embedder)
        return cls(host.settings, host.policy, related)

    @property
    def stats(self) -> RecallStats:
        return RecallStats() if self.related is None else self.related.stats

    @property
    def is_on(self) -> bool:
        return self.rules.turns > 0

    def use(self, policy: Policy) -> None:
        self.rules = policy.recall

    async def close(self) -> None:
        if self.related is not None:
            await self.related.close()

    def stage(self, run: Run) -> Stage | None:
        is_decided = run.accepted.former.plan.recalled is not None
        return Recalling(run, self) if is_decided or self.count(run.accepted.request) else None

    def count(self, request: Request) -> int:
        """How many turns to recall for the request."""
        if not request.question:
            return 0
        if request.recall is not None:
            return request.recall
        return self.rules.turns if request.prompt is not None and not request.raw else 0


class Recalling(Stage):
    def __init__(self, run: Run, recall: Recall) -> None:
        super().__init__(run)
        self._recall = recall

    def is_decided(self, former: Former) -> bool:
        """A prompt that the guard has blocked is not searched for."""
        return former.has_begun or former.plan.recalled is not None or former.plan.filtered is not None

    async def decide(self, plan: Plan, then: Decide) -> Plan:
        plan = await then(plan)
        recall, request, marks = self._recall, self.run.accepted.request, self.run.partition.ownership.marks
        if recall.related is None:
            return msgspec.structs.replace(plan, recalled=())
        ttl_ms = int(recall.settings.index_ttl * 1000)
        question = (await self.run.see(Dialogue(request))).request.question
        most = recall.count(request) + recall.settings.conversation_turns + len(request.replaces)
        query = Query(
            user_id=request.user_id,
            text=question,
            limit=2 * most,  # a turn is two rows
            since=self.run.partition.ownership.clock.now() - ttl_ms if ttl_ms else None,
            until=self.run.accepted.at,
            erased_at=marks.erased_at(request.user_id),
            erased=marks.being_erased(request.user_id),
        )
        began = self.run.ownership.clock.now()
        related = await recall.related.find(query, recall.rules.budget_ms / 1000)
        name = recall.settings.milvus_collection
        tell_retrieval(self.run, name, began, self.run.ownership.clock.now(), len(related))
        return msgspec.structs.replace(plan, recalled=tuple(related))

    def read(self, plan: Plan, memory: Sequence[KeptTurn]) -> Plan:
        turns = plan.recalled
        if turns is None:
            return plan
        if self.run.accepted.former.plan.recalled is None:
            turns = self._chosen(turns, memory)
        plan = msgspec.structs.replace(plan, recalled=turns)
        return without_erased(plan, self.run.ownership.marks, self.run.accepted.request.user_id)

    def _chosen(self, related: Sequence[RecalledTurn], memory: Sequence[KeptTurn]) -> tuple[RecalledTurn, ...]:
        """In the order of time, and nothing of what this request replaces."""
        request = self.run.accepted.request
        known = {request.request_id, *request.replaces, *(turn.request_id for turn in memory)}
        others = [turn for turn in related if turn.request_id not in known]
        return tuple(sorted(others[: self._recall.count(request)], key=lambda turn: turn.asked_at))
