"""How a kernel reads and writes memory: addresses become pointers, and rows are of float32 or of bfloat16.

A kernel computes in float32 whatever its rows are. Numba has no bfloat16: it is the upper half of a float32, and is
rounded to nearest, ties to even, as torch does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from numba import njit, types
from numba.core.typing import signature
from numba.extending import intrinsic

Function = Any
"""What Numba compiles."""


def _pointer(kind: Any) -> Function:
    @intrinsic
    def pointer(_typing: Any, address: Any) -> Any:
        def generated(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))

        return types.CPointer(kind)(address), generated

    return pointer


def _bits(source: Any, target: Any) -> Function:
    @intrinsic
    def bits(_typing: Any, value: Any) -> Any:  # noqa: ARG001 - Numba converts it to `source`
        def generated(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return builder.bitcast(arguments[0], context.get_value_type(signature.return_type))

        return target(source), generated

    return bits


float32_at, float64_at = _pointer(types.float32), _pointer(types.float64)
int64_at, int8_at, uint16_at = _pointer(types.int64), _pointer(types.int8), _pointer(types.uint16)
bits_of, float_of = _bits(types.float32, types.uint32), _bits(types.uint32, types.float32)

# The C library's, because memory of Numba needs its run-time library. An address of 0 is not met: Linux overcommits.
allocate = types.ExternalFunction("malloc", signature(types.int64, types.int64))
release = types.ExternalFunction("free", signature(types.void, types.int64))


@njit(inline="always")
def _read_float32(row: Any, at: int) -> Any:
    return row[at]


@njit(inline="always")
def _write_float32(row: Any, at: int, value: Any) -> None:
    row[at] = value


@njit(inline="always")
def _read_bfloat16(row: Any, at: int) -> Any:
    return float_of(types.uint32(row[at]) << types.uint32(16))


@njit(inline="always")
def _write_bfloat16(row: Any, at: int, value: Any) -> None:
    bits = bits_of(types.float32(value))
    bits += types.uint32(0x7FFF) + ((bits >> types.uint32(16)) & types.uint32(1))
    row[at] = types.uint16(bits >> types.uint32(16))


@dataclass(frozen=True, slots=True)
class Cells:
    """The numbers of a row. `at` makes a pointer of an address; `size` is in bytes."""

    name: str
    size: int
    at: Function
    read: Function
    write: Function


FLOAT32 = Cells("float32", 4, float32_at, _read_float32, _write_float32)
BFLOAT16 = Cells("bfloat16", 2, uint16_at, _read_bfloat16, _write_bfloat16)
