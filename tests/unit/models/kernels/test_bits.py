"""Kernels have the same bits on every kind of CPU, and with every LLVM. For another CPU: test_library.py."""

from __future__ import annotations

import hashlib

import torch

from models.kernels.schemas import NumberForm

BITS = "ab46e70475f8e47719438dd59a81c57226ca4a790244c7a71bf1fba1e2738d60"
"""Of what kernels make of `given`. Other bits are other arithmetic: who changes them changes the version that
models/checkpoints/arithmetic.py makes of it.
"""
ROWS, CACHES = {NumberForm.BFLOAT16}, {NumberForm.BFLOAT16, NumberForm.NARROW_CACHE}
"""The forms whose rows and whose cache are of bfloat16."""


def given(*shape, least=-2.0, most=2.0):
    """Numbers that every machine makes alike."""
    count = torch.Size(shape).numel()
    steps = torch.arange(count, dtype=torch.int64) * 7919 % 1009
    return (steps.to(torch.float32) / 1009 * (most - least) + least).view(shape)


def bits():
    found = hashlib.sha256()
    for form in NumberForm:
        for queries, size in ((4, 40), (7, 136)):
            for one in computed(form, queries, size):
                found.update(one.view(torch.uint8).numpy().tobytes())
    return found.hexdigest()


def computed(form, queries, size, tokens=21):
    kernels = torch.ops.parley
    rows, cache = (torch.bfloat16 if form in forms else torch.float32 for forms in (ROWS, CACHES))
    hidden, added, normed = given(tokens, size), given(tokens, size).to(rows), torch.empty(tokens, size, dtype=rows)
    kernels.add_norm(hidden, added, given(size), given(size), normed, tokens, 1, form, size, 2, 1e-6)
    yield from (hidden, normed)

    joined = given(tokens, queries + 2, size).to(rows)
    numbers = torch.tensor([*[0] * tokens, *range(tokens), *range(tokens), 0, 1])
    keys, values = (torch.zeros(2, 16, 1, size, dtype=cache) for _ in range(2))
    weight, angles = given(size), given(tokens, size)
    kernels.rotate(
        joined, weight, weight, angles, angles, numbers, keys, values, tokens, 1, form, queries, 1, size, 1, 1e-6
    )
    yield from (joined, keys, values)

    groups, out = torch.tensor([[0, 1, tokens, 32, 3 * tokens, 2, 0]]), torch.empty(tokens, queries, size, dtype=rows)
    kernels.attend(
        joined, keys, values, numbers, groups, out, 6, 1, form, tokens, queries, 1, size, 9, 16, 32, 1, 4, 0.2, 5.0
    )
    yield out

    for is_gelu in (0, 1):
        gated = torch.empty(tokens, size // 2, dtype=rows)
        kernels.gate(added, gated, tokens, 1, form, size // 2, is_gelu)
        yield gated

    wide = 16 * size
    weight, found = given(70, wide).to(rows), torch.empty(tokens, 70)
    kernels.multiply(given(tokens, wide), weight, found, 2, 1, form, tokens, wide, 70)
    yield found


def test_its_bits_are_those_of_every_machine(kernels):
    del kernels
    assert bits() == BITS
