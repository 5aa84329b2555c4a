"""Past turns for commands that use them again: without erased ones, one partition after the other."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

from aiokafka.errors import KafkaError

from app.commands.erasures import asked_to_erase
from app.commands.scan import records_since
from app.commands.terminal import note
from app.kafka.clients import KafkaUnusableError, partitions_of
from app.search.kept_rows import erasure_marks
from app.settings import Settings
from app.wire.codec import decode
from app.wire.error import WireError
from app.wire.turn import Turn
from tables.erasures import ErasedUntil


@dataclass(frozen=True, slots=True)
class StoredTurns:
    """The turns of a partition, in their order; in the place of those that are `replaced` others stand."""

    partition: int
    turns: tuple[Turn, ...]
    replaced: frozenset[tuple[str, str]]

    def has_later(self, turn: Turn) -> bool:
        return (turn.user_id, turn.request_id) in self.replaced


@dataclass(frozen=True, slots=True)
class TurnFilter:
    """Which turns: those that ended from `since` on and before `until`, Unix milliseconds; with `include_replaced` also
    those in whose place others stand.
    """

    since: int
    until: int | None = None
    tenant: str | None = None
    model: str | None = None
    include_replaced: bool = False

    def includes(self, turn: Turn) -> bool:
        return (
            self.may_follow(turn)
            and turn.created_at >= self.since
            and (self.tenant is None or (turn.tenant or "") == self.tenant)
            and (self.model is None or self.model in {turn.model_version, turn.model_version.partition("@")[0]})
        )

    def may_follow(self, turn: Turn) -> bool:
        """Whether a chosen turn may stand behind this one in its conversation."""
        return self.until is None or turn.created_at < self.until


async def stored_turns(settings: Settings, choice: TurnFilter, context_ms: int = 0) -> AsyncIterator[StoredTurns]:
    """Each partition with its turns; turns without texts are left out. With `context_ms` those of the same
    conversations are among them that ended so long before `since`, or were answered by another model. What replaces a
    turn is read up to the end of the topic, and counts whoever has answered it.

    What is erased is read after the turns of a partition, so an erasure that was sent before they were read counts,
    also one that no worker has carried out yet. Raises `KafkaUnusableError`.
    """
    topic = settings.topic("turns")
    for partition in range((await partitions_of(settings.cluster, [topic]))[topic]):
        turns, versions = [], []
        async for record in records_since(settings, "turns", max(0, choice.since - context_ms), partition):
            try:
                turn = decode(Turn, record.value, record.headers)
            except WireError as error:
                note(f"turns partition {partition} offset {record.offset} is skipped: {error}")
                continue
            if turn.hides:
                versions.append(turn)
            if choice.includes(turn) or (context_ms and choice.may_follow(turn)):
                turns.append(turn)
        chosen = {_conversation(turn) for turn in turns if choice.includes(turn)}
        if turns := [turn for turn in turns if _conversation(turn) in chosen]:
            marks = await _erased(settings)
            kept, newer = (
                [turn for turn in some if turn.outlives(marks.at(*_conversation(turn)))] for some in (turns, versions)
            )
            replaced = {(turn.user_id, one) for turn in newer for one in turn.hides}
            yield StoredTurns(partition, tuple(kept), frozenset(() if choice.include_replaced else replaced))


def _conversation(turn: Turn) -> tuple[str, str]:
    return turn.user_id, turn.conversation_id


async def _erased(settings: Settings) -> ErasedUntil:
    """When users and conversations were last erased, or asked to be: in any partition, as workers carry out an erasure
    that a wrong partitioner has put elsewhere, too.
    """
    try:
        marks = await erasure_marks(settings)
    except KafkaError as error:
        raise KafkaUnusableError(f"the erasures cannot be read: {error}") from None
    async for record in records_since(settings, "controls", 0):
        if (scope := asked_to_erase(record)) is not None:
            marks.add(scope, record.timestamp)
    return marks
