"""Functions of float32 that kernels share, by operations whose rounding is written down."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit, types

from models.kernels.memory import float_of
from models.kernels.sums import fma
from models.kernels.worker import options

f32, u32, i32 = types.float32, types.uint32, types.int32
_LOG2_E = 1.44269504088896341
_LN2_HIGH, _LN2_LOW = 0.693359375, -2.12194440e-4
_MANTISSA = 23
_BIAS = 127


@njit(inline="always")
def keep_nan(value: Any, found: Any) -> Any:
    """`found`, or NaN if `value` is that or infinite: minima and maxima lose it, and a broken row has to be noticed."""
    return fma(value, f32(0.0), found)


@njit(inline="always")
def exp(value: Any) -> Any:
    """A power of two times a polynomial on [-ln 2 / 2, ln 2 / 2], as in Cephes' expf: right to 2e-7. At most 88, and
    at least -87, where it is 1e-38.
    """
    bounded = min(max(value, f32(-87.0)), f32(88.0))
    whole = np.floor(fma(bounded, f32(_LOG2_E), f32(0.5)))
    x = fma(whole, f32(-_LN2_LOW), fma(whole, f32(-_LN2_HIGH), bounded))
    y = fma(f32(1.9875691500e-4), x, f32(1.3981999507e-3))
    y = fma(y, x, f32(8.3334519073e-3))
    y = fma(y, x, f32(4.1665795894e-2))
    y = fma(y, x, f32(1.6666665459e-1))
    y = fma(y, x, f32(5.0000001201e-1))
    y = fma(y * x, x, x) + f32(1.0)
    return keep_nan(value, y * float_of(u32(i32(whole) + i32(_BIAS)) << u32(_MANTISSA)))


@njit(inline="always")
def tanh(value: Any) -> Any:
    power = exp(f32(2.0) * min(max(value, f32(-15.0)), f32(15.0)))
    return keep_nan(value, (power - f32(1.0)) / (power + f32(1.0)))


@njit(**options())
def inverse_rms(squares: Any, count: int, eps: Any) -> Any:
    """Of `count` numbers with that sum of squares."""
    return f32(1.0) / math.sqrt(squares / f32(count) + f32(eps))
