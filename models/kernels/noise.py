"""The noise of models/drawing/noise.py for one token: near enough to rule a token out, and exactly."""

from __future__ import annotations

import math
from typing import Any

from numba import njit, types

from models.kernels.functions import f32, i32, u32
from models.kernels.memory import bits_of, float_of
from models.kernels.sums import fma

f64 = types.float64
NEAR = 1e-4
"""At most how far `near_noise` is from the noise, with room to spare."""
_SHIFT, _UNIT = 8, 2.0**-24
_TOP = (1 << 24) - 1
_FIRST, _SECOND = 0x7FEB352D, 0x846CA68B
_MANTISSA, _MANTISSA_BITS, _HALF, _HALF_EXPONENT = 23, 0x7FFFFF, 0x3F000000, 126
_SQRT_HALF, _LN2 = 0.707106781186547524, 0.693147180559945309
_SMALL = 1 / 16


@njit(inline="always")
def _scramble(x: Any) -> Any:
    x = u32(x ^ u32(x >> u32(16)))
    x = u32(x * u32(_FIRST))
    x = u32(x ^ u32(x >> u32(15)))
    x = u32(x * u32(_SECOND))
    return u32(x ^ u32(x >> u32(16)))


@njit(inline="always")
def hashed(token: Any, one: Any, other: Any) -> Any:
    """24 bits, by the two keys of an answer's token."""
    return u32(_scramble(u32(_scramble(u32(u32(token) ^ u32(one))) + u32(other))) >> u32(_SHIFT))


@njit(inline="always")
def _log(value: Any) -> Any:
    """Of a positive number, as in Cephes' logf."""
    bits = bits_of(value)
    exponent = f32(i32(u32(bits >> u32(_MANTISSA))) - i32(_HALF_EXPONENT))
    part = float_of(u32(u32(bits & u32(_MANTISSA_BITS)) | u32(_HALF)))
    is_low = part < f32(_SQRT_HALF)
    exponent = exponent - f32(1.0) if is_low else exponent
    x = (part + part if is_low else part) - f32(1.0)
    y = fma(f32(7.0376836292e-2), x, f32(-1.1514610310e-1))
    y = fma(y, x, f32(1.1676998740e-1))
    y = fma(y, x, f32(-1.2420140846e-1))
    y = fma(y, x, f32(1.4249322787e-1))
    y = fma(y, x, f32(-1.6668057665e-1))
    y = fma(y, x, f32(2.0000714765e-1))
    y = fma(y, x, f32(-2.4999993993e-1))
    y = fma(y, x, f32(3.3333331174e-1))
    square = x * x
    y = fma(y * x, square, f32(-0.5) * square)
    return fma(exponent, f32(_LN2), x + y)


@njit(inline="always")
def near_noise(bits: Any) -> Any:
    """The noise of what was hashed, in float32."""
    uniform = (f32(bits) + f32(0.5)) * f32(_UNIT)
    rest = (f32(i32(_TOP) - i32(bits)) + f32(0.5)) * f32(_UNIT)
    series = fma(uniform, f32(0.2), f32(0.25))
    series = fma(series, uniform, f32(1.0 / 3.0))
    series = fma(series, uniform, f32(0.5))
    series = fma(series * uniform, uniform, uniform)
    return -_log(series if uniform < f32(_SMALL) else -_log(rest))


@njit
def exact_noise(bits: Any) -> Any:
    uniform = (f64(bits) + 0.5) * _UNIT
    return f32(-math.log(-math.log1p(-uniform)))
