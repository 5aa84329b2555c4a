"""Products of integers: near the weights' own, exact in their sums, and the same for a row whatever is beside it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch
from torch import Tensor
from torch.nn.functional import linear

from models.weights.forms import Kind
from models.weights.int8 import (
    int8_blocks,
    int8_product,
    onednn_int8_blocks,
    onednn_why_not,
    why_not,
)
from models.weights.matrix import matrix_of, scripted_product

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
    found = int8_product(given, [], int8_blocks(weight), bias)
    assert found.dtype is dtype
    assert off(found, linear(given.float(), weight, bias.float())) < 0.02


@pytest.fixture(params=[Kind.INT8, Kind.INT8_ONEDNN])
def kind(request: pytest.FixtureRequest) -> Kind:
    found: Kind = request.param
    if found is Kind.INT8_ONEDNN and (reason := onednn_why_not()):
        pytest.skip(reason)
    return found


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_row_is_the_same_alone_and_among_others_bit_for_bit(shape: tuple[int, int], kind: Kind) -> None:
    one = matrix_of(random(*shape), None, kind, torch.float32)
    rows = random(130, shape[1], seed=4) * random(130, 1, seed=5).exp()

    def product(given: Tensor) -> Tensor:
        found: Tensor = scripted_product(given, one.parts, one.eight, None, 1, 0)
        return found

    together = product(rows)
    for at in range(130):
        assert torch.equal(product(rows[at : at + 1])[0], together[at])
    assert torch.equal(product(rows[5:38]), together[5:38])


@pytest.mark.skipif(onednn_why_not() is not None, reason=f"no products of integers by oneDNN: {onednn_why_not()}")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_both_libraries_have_the_same_bits(shape: tuple[int, int], dtype: torch.dtype) -> None:
    weight, bias = random(*shape), random(shape[0], seed=2).to(dtype)
    for rows in (1, 7, 64):
        given = random(rows, shape[1], seed=3).to(dtype)
        found = int8_product(given, [], int8_blocks(weight), bias)
        assert torch.equal(int8_product(given, onednn_int8_blocks(weight), [], bias), found)


def test_a_library_whose_sums_are_others_is_not_used() -> None:
    """So are those of oneDNN's kernels for AVX2, which saturate with an odd number of inputs."""
    check = "from models.weights.int8 import onednn_why_not; print(onednn_why_not())"
    limited = os.environ | {"ONEDNN_MAX_CPU_ISA": "AVX2"}
    done = subprocess.run([sys.executable, "-c", check], env=limited, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "its sums are others on this CPU"


def test_a_row_that_is_no_number_stays_alone() -> None:
    weight, rows = int8_blocks(random(8, 16)), random(3, 16, seed=2)
    rows[1, 4] = torch.nan
    found = int8_product(rows, [], weight, None)
    assert found[1].isnan().all()
    assert torch.equal(found[[0, 2]], int8_product(rows[[0, 2]], [], weight, None))


def test_a_row_of_zeros_and_a_weight_of_zeros_give_zeros() -> None:
    weight = int8_blocks(torch.zeros(4, 8))
    assert int8_product(torch.ones(2, 8), [], weight, None).eq(0).all()
    assert int8_product(torch.zeros(2, 8), [], int8_blocks(random(4, 8)), None).eq(0).all()


WORST = """
import sys, torch
from models.weights.int8 import int8_product, int8_blocks
signs = torch.tensor([1.0, 1.0, -1.0, -1.0]).repeat(160)
weight = torch.stack([torch.ones(640), signs, -signs, torch.linspace(-1, 1, 640)])
rows = torch.stack([torch.ones(640), -torch.ones(640), signs, torch.linspace(1, -1, 640)])
found = int8_product(rows, [], int8_blocks(weight), None)
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
