"""A step that goes on from the one before is what packing it anew would have been."""

from __future__ import annotations

import random

import pytest
import torch

from models.compute.batch import pack
from models.compute.decode_batch import Steady
from models.compute.pages import PagePool
from models.engine.sequence import ScheduledChunk
from tests.unit.models.engine.sequences import sequences_of, slices_of

CPU = torch.device("cpu")


def say(sequences, pool, chance):
    for sequence in sequences:
        sequence.advance(1, pool)
        sequence.tokens.append(chance.randrange(5, 90))
        assert sequence.grow(pool)


def packed(slices, pool):
    return pack(slices, pool, CPU)


def assert_same(batch, fresh):
    assert torch.equal(batch.numbers, fresh.numbers)
    assert (batch.count, batch.drawing, batch.groups) == (fresh.count, fresh.drawing, fresh.groups)
    assert [part.sequence for part in batch.order] == [part.sequence for part in fresh.order]
    assert [(part.sequence, offset) for part, offset in batch.draws] == [
        (part.sequence, offset) for part, offset in fresh.draws
    ]


@pytest.mark.parametrize("seed", range(5))
def test_every_step_is_what_packing_it_would_give_until_a_group_has_to_grow(seed):
    chance, pool = random.Random(seed), PagePool(200, 16)
    sequences = sequences_of([chance.randrange(2, 60) for _ in range(7)], pool)
    steady, kept = None, 0
    for _ in range(60):
        slices = slices_of(sequences)
        fresh = packed(slices, pool)
        batch = steady.next(slices) if steady else None
        if batch is None:
            batch = packed(slices, pool)
            steady = Steady.of(batch, slices, pool.size)
        else:
            kept += 1
        assert_same(batch, fresh)
        say(sequences, pool, chance)
    assert kept >= 50


def start():
    pool, chance = PagePool(200, 16), random.Random(1)
    sequences = sequences_of([20, 18, 5], pool)
    slices = slices_of(sequences)
    steady = Steady.of(packed(slices, pool), slices, pool.size)
    say(sequences, pool, chance)
    return pool, sequences, steady


def test_other_rows_are_another_batch():
    _, sequences, steady = start()
    assert steady.next(slices_of(sequences[:2])) is None
    assert steady.next(slices_of(sequences[::-1])) is None
    assert steady.next(slices_of(sequences)) is not None


def test_a_row_that_gave_its_pages_back_and_has_others_is_another():
    _, sequences, steady = start()
    sequences[1].pages = list(sequences[1].pages)
    assert steady.next(slices_of(sequences)) is None


def test_a_guess_or_a_chunk_of_a_prompt_is_another_batch():
    _, sequences, steady = start()
    guessed = slices_of(sequences)
    guessed[0].draft = (7,)
    assert steady.next(guessed) is None
    longer = slices_of(sequences)
    longer[0].count = 2
    assert steady.next(longer) is None


def test_a_step_with_a_prompt_in_it_is_not_gone_on_from():
    pool = PagePool(200, 16)
    sequences = sequences_of([20, 18], pool)
    slices = [*slices_of(sequences[:1]), ScheduledChunk(sequences[1], 0, 18)]
    assert Steady.of(packed(slices, pool), slices, pool.size) is None
