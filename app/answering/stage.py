"""What a feature does to one answer.

Three rings, each stage around the next in the order of app/features/order.py, with the pipeline in the middle:

    decide      what is decided before the first token          plan -> plan
    round       from a prompt to its end, once or again         -> End | Failure
    generate    the events that readers get for a job           job -> events

Five visits, one stage after the other: read, see, ended, leave, committed.

What a former owner has decided is not decided again: the pipeline leaves out stages that are `is_decided`, so no stage
can get that wrong. A stage ends an answer by raising `RequestRefused` or `Over`; the pipeline writes the end.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from functools import partial
from typing import Any, TypeVar, cast

from app.answering.dialogue import Dialogue
from app.answering.kept import Kept
from app.answering.run import Run
from app.delivery.accepted import Former
from app.delivery.inflight import Outcome
from app.delivery.observer import UNOBSERVED, Observer
from app.delivery.partition import Partition
from app.delivery.record import Outgoing, Record
from app.policy.file import Policy
from app.policy.watch import PolicyChange
from app.wire.event import Plan, TokenEvent
from models.interface.generation import End, Failure, Job, StreamEvent
from tables.records import KeptTurn

Ending = End | Failure
Decide = Callable[[Plan], Awaitable[Plan]]
Round = Callable[[], Awaitable[Ending]]
Generate = Callable[[Job], AsyncGenerator[StreamEvent, None]]
Ring = TypeVar("Ring", bound=Callable[..., Any])


class Feature:
    """A part of the policy, one per worker. It keeps what outlives an answer: rules, figures, connections.

    A method that is not overridden does nothing.
    """

    @property
    def is_on(self) -> bool:
        """Whether the policy has it on. One that requests alone ask for (`Request.asks`) never is."""
        return True

    @property
    def observer(self) -> Observer:
        """Learns of all requests of the worker while the feature is on."""
        return UNOBSERVED

    async def prepare(self, policy: Policy) -> PolicyChange | None:  # noqa: ARG002
        """Load what the policy needs; None if that is nothing. Raises `PolicyError`, and keeps nothing then."""
        return None

    def use(self, policy: Policy) -> None:
        """Work by this policy from the next answer on. Answers under way keep their stages."""

    def update(self) -> None:
        """Called about once a second while a policy file is followed."""

    def forget(self, user_id: str) -> None:
        """Drop what is remembered of an erased user."""

    async def close(self) -> None:
        """Close what is open. No answer is under way any more."""

    def stage(self, run: Run) -> Stage | None:  # noqa: ARG002
        """Its part in this answer; None if it has none, and then it costs the answer nothing.

        What a former owner has decided by it is carried out whatever the policy says now (`run.accepted.former.plan`).
        """
        return None

    def refused(self, partition: Partition, record: Record, end: TokenEvent) -> Sequence[Outgoing]:  # noqa: ARG002
        """What goes with the error of a request that no stage has seen."""
        return ()


class Switch:
    """Which features an answer is asked of, so that one that is off costs nothing: those that the policy has on.

    All are, if a former owner had the request, because what it has decided is carried out whatever the policy says now;
    and if the request itself asks for a feature.
    """

    def __init__(self, features: Sequence[Feature]) -> None:
        self.all = tuple(features)
        self.observers: list[Observer] = []
        self.update()

    def update(self) -> None:
        """The policy has changed, and each feature works by it."""
        self.on = tuple(one for one in self.all if one.is_on)
        self.observers[:] = [one.observer for one in self.on if one.observer is not UNOBSERVED]

    def use(self, policy: Policy) -> None:
        """The last part of a worker to follow a policy."""
        del policy
        self.update()

    def stages(self, run: Run) -> tuple[Stage, ...]:
        """The stages of this answer, in their order."""
        is_plain = not (run.accepted.former.is_replayed or run.accepted.request.asks)
        asked = self.on if is_plain else self.all
        return tuple(stage for one in asked if (stage := one.stage(run)) is not None)

    def refused(self, partition: Partition, record: Record, end: TokenEvent) -> tuple[Outgoing, ...]:
        """What goes with the error of a request that no stage has seen."""
        return tuple(output for one in self.on for output in one.refused(partition, record, end))


class Stage:
    """The part of a feature in one answer, and the state of that part. A method that is not overridden does nothing."""

    def __init__(self, run: Run) -> None:
        self.run = run

    def is_decided(self, former: Former) -> bool:
        """Whether a former owner has decided. Then `decide` is not called: what stands in the log stands."""
        return former.has_begun or former.plan.is_made

    async def decide(self, plan: Plan, then: Decide) -> Plan:
        """Add to the plan before the first token. Without `then`, the inner stages decide nothing."""
        return await then(plan)

    def read(self, plan: Plan, memory: Sequence[KeptTurn]) -> Plan:
        """The conversation was read. Nothing is awaited between this and the write of the plan: no erasure passes."""
        del memory
        return plan

    async def round(self, then: Round) -> Ending:
        """Let the model read and write: before, around and after one prompt."""
        return await then()

    async def see(self, dialogue: Dialogue) -> Dialogue:
        """What the model gets to read."""
        return dialogue

    def generate(self, job: Job, then: Generate) -> AsyncGenerator[StreamEvent, None]:
        """The events for this job. An override closes what it opens (`aclosing`); this one adds no layer."""
        return then(job)

    async def ended(self) -> None:
        """The answer has its end. Do what takes time before its commit."""

    def leave(self, kept: Kept) -> Kept:
        """What is kept of the answer, and what else its commit has. Nothing is awaited until it is committed."""
        return kept

    def committed(self, outcome: Outcome) -> None:
        """The request is committed. Must not block."""


def around(stages: Sequence[Stage], ring: str, innermost: Ring) -> Ring:
    """Each stage's part in the ring, `decide`, `round` or `generate`, around that of the next one."""
    for part in reversed(parts(stages, ring)):
        innermost = cast("Ring", partial(part, then=innermost))
    return innermost


def parts(stages: Sequence[Stage], name: str) -> list[Any]:
    """The methods of this name that stages have of their own: who has none is not entered."""
    return [getattr(one, name) for one in stages if getattr(type(one), name) is not getattr(Stage, name)]
