"""One answer, from its plan to its commit, without features of the policy."""

from __future__ import annotations

from collections.abc import Sequence

from app.wire.event import TokenEvent
from models.generation import FinishReason
from tests.unit.answering.bench import BenchPartition, Told, answered, model, same_at_every_cut


async def test_an_answer_has_its_words_one_end_a_turn_and_a_row() -> None:
    told = await answered(models=[model()])
    assert told.end.finish_reason is FinishReason.LENGTH
    assert told.turn is not None
    assert told.row is not None
    assert told.turn.answer == told.row.answer == told.text
    assert told.notices == []


async def test_an_answer_that_is_resumed_at_any_event_has_the_same_words() -> None:
    async def run(partition: BenchPartition, before: Sequence[TokenEvent]) -> Told:
        return await answered(models=[model()], partition=partition, before=before)

    await same_at_every_cut(run)
