"""Prepacked products are those of the plain weight; test_one_way.py has their bits."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn.functional import linear

from models.weights.matrix import multiply, prepack

DTYPES = (torch.float32, torch.bfloat16)


def random(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def packed_or_skip(weight: Tensor) -> Tensor:
    try:
        packed = prepack(weight)
        multiply(torch.ones(2, weight.shape[1], dtype=weight.dtype), packed, None)
    except (RuntimeError, AttributeError) as error:
        pytest.skip(f"this CPU or torch has no prepacked products: {error}")
    return packed


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rows", [1, 2, 8, 33, 300])
def test_product_is_that_of_the_plain_weight(rows: int, dtype: torch.dtype) -> None:
    weight, bias, given = (one.to(dtype) for one in (random(48, 32), random(48, seed=2), random(rows, 32, seed=3)))
    for added in (None, bias):
        found = multiply(given, packed_or_skip(weight), added)
        near = {"rtol": 1e-4, "atol": 1e-4} if dtype is torch.float32 else {"rtol": 0.02, "atol": 0.05}
        torch.testing.assert_close(found, linear(given, weight, added), **near)


def test_other_types_are_not_packed() -> None:
    with pytest.raises(RuntimeError, match="float16"):
        prepack(torch.ones(8, 8, dtype=torch.float16))
