"""What a captured graph would read: a step in a batch of at least as many rows."""

from __future__ import annotations

import torch

from models.compute.batch import StepInputs, pack
from models.compute.graphs import fill, still
from models.compute.pages import PagePool
from tests.unit.models.engine.sequences import sequences_of, slices_of

CPU = torch.device("cpu")
PAGES = 8


def step(*lengths: int) -> StepInputs:
    pool = PagePool(200, 16)
    return pack(slices_of(sequences_of(lengths, pool)), pool, CPU, kernel=True)


def table(batch: StepInputs) -> torch.Tensor:
    (group,) = batch.groups
    return batch.numbers[group.at : group.at + group.pages].view(group.rows, -1)


def test_a_step_fills_the_first_rows_and_draws_from_them() -> None:
    held, batch = still(4, PAGES, CPU), step(40, 20)
    fill(held, batch)
    for name in ("tokens", "positions", "slots"):
        assert torch.equal(getattr(held, name)[:2], getattr(batch, name))
    assert torch.equal(table(held)[:2, : table(batch).shape[1]], table(batch))
    assert held.last.tolist() == [0, 1, 2, 3]
    assert held.groups[0].in_place


def test_rows_of_an_earlier_larger_step_write_to_page_0_alone() -> None:
    held = still(4, PAGES, CPU)
    fill(held, step(60, 50, 40, 30))
    fill(held, step(20))
    for name in ("tokens", "positions", "slots"):
        assert getattr(held, name)[1:].tolist() == [0, 0, 0]
    assert not table(held)[1:].any()


def test_rows_that_only_fill_up_attend_one_token_of_page_0() -> None:
    held = still(3, PAGES, CPU)
    assert held.positions.tolist() == [0, 0, 0]  # a token each
    assert not held.slots.any()
    assert not table(held).any()
