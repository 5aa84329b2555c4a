"""Products of integers: near the weights' own, exact in their sums, and the same for a row whatever is beside it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch
from torch import Tensor
from torch.nn.functional import linear

from models.linear.int8 import int8_product, int8_weight, scripted_int8_product, why_not

CPU = torch.device("cpu")
pytestmark = pytest.mark.skipif(why_not(CPU) is not None, reason=f"no products of integers: {why_not(CPU)}")
SHAPES = ((48, 32), (40, 33), (320, 64), (96, 257), (1024, 640))


def random(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def off(found: Tensor, expected: Tensor) -> float:
    return float((found.float() - expected).norm() / expected.norm())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_product_is_near_that_of_the_weight(shape: tuple[int, int], dtype: torch.dtype) -> None:
    weight, bias, given = random(*shape), random(shape[0], seed=2).to(dtype), random(9, shape[1], seed=3).to(dtype)
    found = int8_product(given, int8_weight(weight), bias)
    assert found.dtype is dtype
    assert off(found, linear(given.float(), weight, bias.float())) < 0.02


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_row_is_the_same_alone_and_among_others_bit_for_bit(shape: tuple[int, int]) -> None:
    weight = int8_weight(random(*shape))
    rows = random(32, shape[1], seed=4) * random(32, 1, seed=5).exp()
    together = scripted_int8_product(rows, weight, None)
    for at in range(32):
        assert torch.equal(scripted_int8_product(rows[at : at + 1], weight, None)[0], together[at])


def test_a_row_that_is_no_number_stays_alone() -> None:
    weight, rows = int8_weight(random(8, 16)), random(3, 16, seed=2)
    rows[1, 4] = torch.nan
    found = int8_product(rows, weight, None)
    assert found[1].isnan().all()
    assert torch.equal(found[[0, 2]], int8_product(rows[[0, 2]], weight, None))


def test_a_row_of_zeros_and_a_weight_of_zeros_give_zeros() -> None:
    weight = int8_weight(torch.zeros(4, 8))
    assert int8_product(torch.ones(2, 8), weight, None).eq(0).all()
    assert int8_product(torch.zeros(2, 8), int8_weight(random(4, 8)), None).eq(0).all()


WORST = """
import sys, torch
from models.linear.int8 import int8_product, int8_weight
signs = torch.tensor([1.0, 1.0, -1.0, -1.0]).repeat(160)
weight = torch.stack([torch.ones(640), signs, -signs, torch.linspace(-1, 1, 640)])
rows = torch.stack([torch.ones(640), -torch.ones(640), signs, torch.linspace(1, -1, 640)])
found = int8_product(rows, int8_weight(weight), None)
assert ((found - rows @ weight.T).abs() < 8).all(), found - rows @ weight.T
sys.stdout.write(found.numpy().tobytes().hex())
"""
"""Weights and activations at their limits: their sums are the first to saturate in 16 bits."""


def test_no_sum_saturates_on_a_cpu_without_vnni_and_every_cpu_has_the_same() -> None:
    kinds = ("", "AVX2") if "AVX512" in torch.backends.cpu.get_cpu_capability() else ("",)  # type: ignore[no-untyped-call]
    found = {_worst(kind) for kind in kinds}
    assert len(found) == 1


def _worst(instructions: str) -> str:
    chosen = {"FBGEMM_ENABLE_INSTRUCTIONS": instructions} if instructions else {}
    done = subprocess.run(
        [sys.executable, "-c", WORST], env=os.environ | chosen, capture_output=True, text=True, check=True
    )
    return done.stdout


def test_other_devices_have_none() -> None:
    assert why_not(torch.device("cuda")) == "they are of a CPU, not of cuda"
