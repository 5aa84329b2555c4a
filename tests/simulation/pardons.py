"""What the verdict cannot know of a run: what a hostile record, an erasure or a loss of records has met."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.faults.records import Key
from tests.faults.verdict import Verdict
from tests.simulation.erasures import Erasures
from tests.simulation.topics import Topics

if TYPE_CHECKING:
    from tests.simulation.scenario import Simulation

_OF_LOST_RECORDS = ("lost", "gaps", "repeats", "second_ends", "turn_differs", "wrong_plans")


@dataclass(frozen=True, slots=True)
class Pardons:
    """Of one run. `sent`: when each request was sent, by its owner's clock if its producer's is ahead."""

    simulation: Simulation
    topics: Topics
    erasures: Erasures
    sent: Mapping[Key, int]

    def apply(self, verdict: Verdict) -> None:
        for name in ("turn_differs", "wrong_plans", "wrong_calls"):
            _keep(verdict, name, self.topics.innocent.key)
        self._of_erasures(verdict)
        self._of_lost_records(verdict)
        pardoned = self._lost_conversations(verdict)
        conversations = self.erasures.conversations
        _keep(verdict, "changed", lambda key: conversations.get(key) not in pardoned)

    def _of_erasures(self, verdict: Verdict) -> None:
        """A request that was sent before an erasure leaves an empty turn, whatever its readers have. One that was sent
        before the mark stood cannot be resumed: what its answer was built on is gone.
        """
        if self.simulation.conditions.mixed:  # an answer whose model is gone cannot always be continued
            verdict.torn_off.clear()
        erasures, recalls = self.erasures, self.topics.that_recall()
        _keep(
            verdict,
            "torn_off",
            lambda key: self.sent[key] > (erasures.marked_for(key[0]) if key in recalls else erasures.marked_at(key)),
        )
        _keep(verdict, "turn_differs", lambda key: not erasures.touch_request(key) or self.topics.is_kept(key))

    def _of_lost_records(self, verdict: Verdict) -> None:
        """Kafka has lost what these answers are made of, or repeat."""
        torn, routed = self.simulation.torn, self.simulation.conditions.routed
        # Another model cannot go on behind calls that the former one has made.
        unknown = ("torn_off", "wrong_calls") if routed else ()
        unknown = (*unknown, "changed") if self._knows_no_writer else unknown
        for name in (*_OF_LOST_RECORDS, *unknown):
            _keep(verdict, name, lambda key: key not in torn)
        sources = {key: (key[0], plan.cached) for key, plan in verdict.plans.items()}
        _keep(verdict, "wrong_plans", lambda key: sources.get(key) not in torn)
        users = {user for user, _ in torn}  # an end that is lost makes the next answer look early
        _keep(verdict, "out_of_order", lambda key: key[0] not in users)

    @property
    def _knows_no_writer(self) -> bool:
        """With a plan that Kafka has lost, the verdict does not know who wrote the answer."""
        conditions = self.simulation.conditions
        return conditions.routed or self.simulation.masked or conditions.moderated

    def _lost_conversations(self, verdict: Verdict) -> Collection[tuple[str, str]]:
        """Those whose later prompts the verdict cannot compute."""
        torn, plans, turns = self.simulation.torn, verdict.plans, self.topics.turns()
        # Calls whose tokens are lost.
        ended = {key for key, plan in plans.items() if plan.superseded is not None}
        # One that was stopped behind calls, and has lost the text before them, is remembered with that text.
        stopped = {(one.user_id, one.request_id) for one in turns if one.tool_calls and not one.answer}
        mute = {(one.user_id, one.request_id) for one in turns if one.finish_reason == "stop" and not one.answer}
        steered = {key: (key[0], plan.steered) for key, plan in plans.items() if plan.steered is not None}
        lost = torn if self._knows_no_writer else torn & (ended | stopped | mute | steered.keys())
        # Words into what Kafka has lost may be a turn of their own, and those that are stopped may be in none. Which of
        # their values the row of a turn names is on no topic.
        stops, masked = self.topics.that_may_stop(), self.simulation.masked
        unknown = {key for key, into in steered.items() if masked or into in torn or key in stops}
        conversations = self.erasures.conversations
        return {conversations[key] for key in lost if key in conversations} | {conversations[key] for key in unknown}


def _keep(verdict: Verdict, name: str, is_known: Callable[[Key], bool]) -> None:
    found: list[Key] = getattr(verdict, name)
    found[:] = [key for key in found if is_known(key)]
