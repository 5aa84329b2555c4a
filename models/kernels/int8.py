"""Rows of float32 become rows of eight-bit integers with a scale each, and products of them float32 again.

The same bits as `int8_product` (models/weights/int8.py).
"""

from __future__ import annotations

import numpy as np
from numba import njit, types

from models.kernels.functions import f32
from models.kernels.memory import Cells, Function, float32_at, int8_at, int64_at
from models.kernels.sums import largest
from models.kernels.worker import SIGNATURE, alone

_GIVEN, _QUANTS, _SCALES, _, _, _, _SIZE, _IS_INTEGER = range(8)
_FOUND, _FOUND_SCALES, _BIAS, _OUT, _, _, _, _OUTPUTS, _FIRST, _WIDTH, _HAS_BIAS = range(11)
_LARGEST, _LEAST = 127.0, 1e-32


def quantizer_of(_cells: Cells, _cache: Cells) -> Function:
    @njit(SIGNATURE, **alone())
    def worker(begin: int, end: int, stack: int) -> None:
        values = int64_at(stack)
        size = values[_SIZE]
        for row in range(begin, end):
            given = float32_at(values[_GIVEN] + row * size * 4)
            scale = largest(given, size) / f32(_LARGEST)
            if scale < f32(_LEAST):  # noqa: PLR1730 - a maximum would lose NaN
                scale = f32(_LEAST)
            float32_at(values[_SCALES])[row] = scale
            if values[_IS_INTEGER]:
                integers = int8_at(values[_QUANTS] + row * size)
                for i in range(size):
                    integers[i] = types.int8(types.int32(np.rint(given[i] / scale)))
            else:
                floats = float32_at(values[_QUANTS] + row * size * 4)
                for i in range(size):
                    floats[i] = np.rint(given[i] / scale)

    return worker


def scaler_of(_cells: Cells, _cache: Cells) -> Function:
    @njit(SIGNATURE, **alone())
    def worker(begin: int, end: int, stack: int) -> None:
        values = int64_at(stack)
        outputs, first = values[_OUTPUTS], values[_FIRST]
        bias = float32_at(values[_BIAS] + first * 4)
        for row in range(begin, end):
            found, scale = float32_at(values[_FOUND] + row * outputs * 4), float32_at(values[_FOUND_SCALES])[row]
            out = float32_at(values[_OUT] + (row * values[_WIDTH] + first) * 4)
            if values[_HAS_BIAS]:
                for i in range(outputs):
                    out[i] = found[i] * scale + bias[i]
            else:
                for i in range(outputs):
                    out[i] = found[i] * scale

    return worker
