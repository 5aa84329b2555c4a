"""Gumbel noise that depends only on (seed, index, token).

A counter-based hash instead of a generator: neither the batch, nor the position in it, nor a restart changes what is
drawn. The logarithms are computed in float64 and rounded to float32, because their last bit depends on a number's
position in a vector.
"""

from __future__ import annotations

from torch import Tensor

MASK64 = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15


def key(seed: int, index: int) -> tuple[int, int]:
    """Two signed 32-bit keys for token `index` of the answer drawn with `seed` (splitmix64 of both)."""
    mixed = _mix((_mix(seed & MASK64) + GOLDEN * (index + 1)) & MASK64)
    return _signed(mixed & 0xFFFFFFFF), _signed(mixed >> 32)


def gumbel(keys: Tensor, tokens: Tensor) -> Tensor:
    """Noise for `keys` [rows, 2] and `tokens` [rows or 1, n], both int32."""
    x = tokens ^ keys[:, :1]
    x = _scramble(x)
    x = _scramble(x + keys[:, 1:])
    uniform = (((x >> 8) & 0xFFFFFF).double() + 0.5) * 2.0**-24
    return uniform.neg_().log1p_().neg_().log_().neg_().float()


def _scramble(x: Tensor) -> Tensor:
    """A 32-bit bijection with good avalanche; int32 products wrap around."""
    x = x ^ ((x >> 16) & 0xFFFF)
    x = x * 0x7FEB352D
    x = x ^ ((x >> 15) & 0x1FFFF)
    x = x * -0x7B935975  # 0x846CA68B
    return x ^ ((x >> 16) & 0xFFFF)


def _mix(value: int) -> int:
    value = (value + GOLDEN) & MASK64
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & MASK64
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & MASK64
    return value ^ (value >> 31)


def _signed(value: int) -> int:
    return value - (1 << 32) if value >= 1 << 31 else value
