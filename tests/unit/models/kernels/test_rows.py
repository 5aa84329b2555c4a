"""Each kernel computes what torch's own operations do in float64, and a row's bits depend on that row alone."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn.functional import gelu, silu

from models.weights.int8 import int8_blocks, int8_product, why_not

EPS = 1e-6
SIZES = [8, 31, 64, 640]
"""31 has what no vector divides."""
CLOSE = {torch.float32: {"rtol": 2e-6, "atol": 2e-6}, torch.bfloat16: {"rtol": 8e-3, "atol": 8e-3}}


def normed(rows, weight):
    return torch.rms_norm(rows.double(), [rows.shape[-1]], weight.double(), EPS)


def is_half(dtype):
    return int(dtype is torch.bfloat16)


@pytest.mark.parametrize("kind", [0, 1, 2], ids=["nothing is added", "a sum", "a norm of what is added"])
@pytest.mark.parametrize("size", SIZES)
def test_add_norm(kernels, chance, dtype, size, kind):
    hidden, added = torch.randn(5, size, generator=chance), torch.randn(5, size, generator=chance).to(dtype)
    post, weight = torch.rand(size, generator=chance), torch.rand(size, generator=chance)
    more = [torch.zeros(5, size), added, normed(added, post)][kind]
    expected, found, before = hidden.double() + more, torch.empty(5, size, dtype=dtype), hidden.clone()
    kernels.add_norm(hidden, added, post, weight, found, 5, 1, is_half(dtype), size, kind, EPS)
    torch.testing.assert_close(hidden.double(), expected, **CLOSE[torch.float32])
    torch.testing.assert_close(found.double(), normed(expected, weight), **CLOSE[dtype])
    last, alone = before[4:].clone(), torch.empty(1, size, dtype=dtype)
    kernels.add_norm(last, added[4:].contiguous(), post, weight, alone, 1, 1, is_half(dtype), size, kind, EPS)
    assert torch.equal(alone, found[4:])
    assert torch.equal(last, hidden[4:])


@pytest.mark.parametrize("form", [silu, gelu], ids=["silu", "gelu"])
@pytest.mark.parametrize("inner", SIZES)
def test_gate(kernels, chance, dtype, inner, form):
    given = (torch.randn(5, 2 * inner, generator=chance) * 6).to(dtype)
    given[0, :4] = torch.tensor([-200.0, 200.0, -50.0, 0.0])
    found = torch.empty(5, inner, dtype=dtype)
    kernels.gate(given, found, 5, 1, is_half(dtype), inner, int(form is gelu))
    gates, others = given.double().chunk(2, -1)
    bent = gelu(gates, approximate="tanh") if form is gelu else silu(gates)
    torch.testing.assert_close(found.double(), bent * others, rtol=CLOSE[dtype]["rtol"], atol=2e-5)


@pytest.mark.parametrize("has_norms", [False, True])
def test_rotate(kernels, chance, dtype, has_norms):
    tokens, queries, kv, size = 6, 4, 2, 16
    joined = torch.randn(tokens, queries + 2 * kv, size, generator=chance).to(dtype)
    norms = [torch.rand(size, generator=chance) for _ in range(2)]
    cos, sin = torch.randn(40, size, generator=chance), torch.randn(40, size, generator=chance)
    positions, slots = torch.tensor([3, 0, 39, 7, 8, 9]), torch.tensor([16, 33, 40, 17, 18, 19])
    numbers = torch.cat([torch.zeros(tokens, dtype=torch.int64), positions, slots])
    keys, values = (torch.zeros(3, 16, kv, size, dtype=dtype) for _ in range(2))
    turned = joined[:, : queries + kv].double()
    if has_norms:
        turned = torch.cat([normed(joined[:, :queries], norms[0]), normed(joined[:, queries:-kv], norms[1])], dim=1)
    turned = turned * cos[positions, None] + turned.roll(size // 2, -1) * sin[positions, None]
    given = joined[:, -kv:].clone()
    kernels.rotate(
        joined,
        *norms,
        cos,
        sin,
        numbers,
        keys,
        values,
        tokens,
        1,
        is_half(dtype),
        queries,
        kv,
        size,
        int(has_norms),
        EPS,
    )
    torch.testing.assert_close(joined[:, :-kv].double(), turned, **CLOSE[dtype])
    assert torch.equal(keys.view(-1, kv, size)[slots], joined[:, queries:-kv])
    assert torch.equal(values.view(-1, kv, size)[slots], given)
    others = [slot for slot in range(48) if slot not in slots.tolist()]
    assert not keys.view(-1, kv, size)[others].any()


@pytest.mark.parametrize("is_integer", [False, True])
@pytest.mark.parametrize("size", SIZES)
def test_quantize_has_the_bits_of_torch(kernels, chance, size, is_integer):
    given = torch.randn(5, size, generator=chance) * torch.tensor([[1e-3], [1.0], [40.0], [0.0], [7.0]])
    quants, scales = torch.empty(5, size, dtype=torch.int8 if is_integer else torch.float32), torch.empty(5)
    kernels.quantize(given, quants, scales, 5, 1, 0, size, int(is_integer))
    expected = given.abs().amax(1, True).div_(127.0).clamp_min_(1e-32)
    assert torch.equal(scales, expected[:, 0])
    assert torch.equal(quants.float(), (given / expected).round_())


@pytest.mark.parametrize("has_bias", [False, True])
def test_a_product_of_integers_has_the_bits_of_torch(kernels, chance, has_bias):
    if reason := why_not(torch.device("cpu")):
        pytest.skip(reason)
    given, weight = torch.randn(5, 64, generator=chance), int8_blocks(torch.randn(33, 64, generator=chance))
    bias = torch.randn(33, generator=chance) if has_bias else None
    quants, scales = torch.empty(5, 64), torch.empty(5)
    kernels.quantize(given, quants, scales, 5, 1, 0, 64, 0)
    found = torch.ops.quantized.linear_with_input_q_dq_qweight_dq_output_fp32(quants, 1.0, 128, weight[0])
    wide, added = torch.full((5, 40), 7.0), torch.empty(0)
    if bias is not None:
        added = torch.cat([torch.zeros(4), bias, torch.zeros(3)])
    kernels.scale(found, scales, added, wide, 5, 1, 0, 33, 4, 40, int(has_bias))
    assert torch.equal(wide[:, 4:37], int8_product(given, [], weight, bias))
    assert torch.equal(wide[:, [*range(4), *range(37, 40)]], torch.full((5, 7), 7.0))


@pytest.mark.parametrize("broken", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("at", [0, 17, 39])
def test_a_row_with_a_broken_number_stays_broken_and_others_do_not_notice(kernels, chance, broken, at):
    given = torch.randn(3, 40, generator=chance)
    whole, (quants, scales) = given.clone(), (torch.empty(3, 40), torch.empty(3))
    given[1, at] = broken
    hidden, normed, gated = given.clone(), torch.empty(3, 40), torch.empty(3, 20)
    ones, nothing = torch.ones(40), torch.empty(0)
    kernels.add_norm(hidden, nothing, nothing, ones, normed, 3, 1, 0, 40, 0, EPS)
    kernels.quantize(given, quants, scales, 3, 1, 0, 40, 0)
    for is_gelu in (0, 1):
        kernels.gate(given, gated, 3, 1, 0, 20, is_gelu)
        if not (broken == -math.inf and at < 20):  # whose SiLU is 0 times something
            assert not gated[1].isfinite().all()
        assert gated[[0, 2]].isfinite().all()
    assert not normed[1].isfinite().all()
    assert not (scales[1] * quants[1]).isfinite().all()
    sound = torch.empty(3, 40), torch.empty(3)
    kernels.quantize(whole, *sound, 3, 1, 0, 40, 0)
    assert torch.equal(sound[0][[0, 2]], quants[[0, 2]])
    assert normed[[0, 2]].isfinite().all()
