"""Products of stored weights: those of float64, and the same bits however many rows are multiplied at once."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from models.weights.stored import stored_product
from models.weights.threads import computing_threads

SHAPES = ((1, 1), (3, 16), (65, 37), (130, 640), (66, 2048), (4, 5136), (200, 1008))
"""[outputs, inputs]: fewer than a tile, a rest that 16 does not divide, one part and several."""
MOST = 70


@pytest.fixture(params=[torch.bfloat16, torch.float32], ids=str)
def dtype(request: pytest.FixtureRequest, kernels: object) -> torch.dtype:
    del kernels
    found: torch.dtype = request.param
    return found


def given(outputs: int, inputs: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    chance = torch.Generator().manual_seed(outputs + inputs)
    rows = torch.randn(MOST, inputs, generator=chance)
    return rows, torch.randn(outputs, inputs, generator=chance).to(dtype)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_they_are_those_of_float64(shape: tuple[int, int], dtype: torch.dtype) -> None:
    rows, weight = given(*shape, dtype)
    expected = rows.double() @ weight.double().T
    found = stored_product(rows, weight, None)
    bound = rows.double().abs() @ weight.double().abs().T * 2.0**-20
    assert found.dtype is torch.float32
    assert bool(((found - expected).abs() <= bound).all())
    bias = torch.arange(shape[0], dtype=torch.float32)
    assert torch.equal(stored_product(rows, weight, bias), found + bias)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_row_has_the_same_bits_alone_and_among_others(shape: tuple[int, int], dtype: torch.dtype) -> None:
    rows, weight = given(*shape, dtype)
    whole = stored_product(rows, weight, None)
    for count in range(1, MOST + 1):
        for first in {0, 1, MOST - count} & {*range(MOST - count + 1)}:
            part = stored_product(rows[first : first + count].clone(), weight, None)
            assert torch.equal(part, whole[first : first + count]), (count, first)
    assert torch.equal(stored_product(rows, weight.float(), None), whole), "bfloat16 is widened as it is"


def test_threads_change_no_bit(dtype: torch.dtype) -> None:
    rows, weight = given(1000, 640, dtype)
    found = []
    for threads in (1, 2, 3):
        with computing_threads(threads):
            found.append(stored_product(rows, weight, None, grain=1))
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])


def test_what_is_not_finite_stays_in_its_row(dtype: torch.dtype) -> None:
    rows, weight = given(65, 640, dtype)
    whole = stored_product(rows, weight, None)
    rows[3, 7], rows[40, 600] = float("inf"), float("nan")
    found = stored_product(rows, weight, None)
    broken = (~found.isfinite()).any(1).nonzero().flatten().tolist()
    assert broken == [3, 40]
    assert torch.equal(found[4:40], whole[4:40])


def test_no_row_is_no_error(dtype: torch.dtype) -> None:
    rows, weight = given(65, 640, dtype)
    assert stored_product(rows[:0], weight, None).shape == (0, 65)
