"""Products of four rows with four others, part by part: between two parts their sums stay 16 lanes each in memory.

A part is short enough that a core's nearest cache holds what it multiplies. The order of additions is that of `dot`
(sums.py) over whole rows.
"""

from __future__ import annotations

import itertools
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from models.kernels import target
from models.kernels.tiles import fetch
from models.kernels.vectors import (
    FLOATS,
    FOUR,
    LANES,
    LONG,
    called,
    numbers_at,
    repeated,
    sixteen_joined,
    write_fours,
)  # fmt: skip

TILE = FOUR * FOUR * LANES * 4
"""Bytes of the lanes of four rows by four."""
_TOGETHER, _VECTOR = (FOUR, FLOATS) if target.kind().holds_many else (2, ir.VectorType(ir.FloatType(), LANES // 2))
"""Of the four others, so many are multiplied at once, by so many lanes: what a CPU's vectors hold."""
_AT_ONCE = _VECTOR is FLOATS


@intrinsic
def widen(_typing: Any, given: Any, count: Any, wide: Any) -> Any:
    """`count` numbers in float32; 16 divides it."""

    def generated(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        given, count, wide = arguments

        def body(at: Any, _none: list[Any]) -> list[Any]:
            numbers = numbers_at(builder, given, at, FLOATS, signature.args[0])
            builder.store(numbers, builder.bitcast(builder.gep(wide, [at]), FLOATS.as_pointer()), align=4)
            return []

        repeated(builder, (ir.Constant(LONG, 0), count, LANES), [], body)
        return context.get_dummy_value()

    return types.void(given, count, wide), generated


def _adder(*, is_first: bool, is_last: bool) -> Any:
    """Of a part of the rows: the first one begins with zeros, the last one writes the sums."""

    @intrinsic
    def add(_typing: Any, rows: Any, apart: Any, others: Any, size: Any, lanes: Any, out: Any, outputs: Any) -> Any:
        """Of four `rows` that are `apart` numbers from each other and four `others` that follow each other, `size`
        numbers, which 16 divides. `lanes` are those of the tile, `out` the first of its sums, in rows of `outputs`.
        """

        def generated(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            rows, apart, others, size, lanes, out, outputs = arguments
            ours = [builder.gep(rows, [builder.mul(apart, ir.Constant(LONG, number))]) for number in range(FOUR)]
            theirs = [builder.gep(others, [builder.mul(size, ir.Constant(LONG, number))]) for number in range(FOUR)]
            sums: list[Any] = []
            for first, lane in itertools.product(range(0, FOUR, _TOGETHER), range(0, LANES, _VECTOR.count)):
                each = [FOUR * row + number for row in range(FOUR) for number in range(first, first + _TOGETHER)]
                places = [_vector_at(builder, lanes, ir.Constant(LONG, at * LANES + lane)) for at in each]
                zero = ir.Constant(_VECTOR, None)
                given = [zero if is_first else builder.load(place, align=4) for place in places]
                next_rows = builder.mul(apart, ir.Constant(LONG, FOUR)) if first == lane == 0 else None
                body = _body(builder, ours, theirs[first : first + _TOGETHER], next_rows)
                sums = repeated(builder, (ir.Constant(LONG, lane), size, LANES), given, body)
                if is_last and _AT_ONCE:
                    break
                for one, place in zip(sums, places, strict=True):
                    builder.store(one, place, align=4)
            if is_last:
                whole = sixteen_joined(builder, sums if _AT_ONCE else _all_lanes(builder, lanes))
                nothing = ir.Constant(FLOATS, None)  # is left, which `dot` would add as zero
                write_fours(builder, builder.fadd(whole, nothing), out, outputs)
            return context.get_dummy_value()

        return types.void(rows, apart, others, size, lanes, out, outputs), generated

    return add


def _body(builder: Any, ours: list[Any], theirs: list[Any], next_rows: Any) -> Any:
    """What adds the products at a place. It begins to read the rows that are `next_rows` numbers away."""

    def body(at: Any, found: list[Any]) -> list[Any]:
        for row in ours if next_rows is not None else ():
            fetch(builder, builder.ptrtoint(builder.gep(row, [builder.add(at, next_rows)]), LONG))
        others, rows = (
            [builder.load(_vector_at(builder, one, at), align=4) for one in many] for many in (theirs, ours)
        )
        pairs = [(one, other) for one in rows for other in others]
        return [called(builder, "fma", _VECTOR, *pair, one) for pair, one in zip(pairs, found, strict=True)]

    return body


def _vector_at(builder: Any, row: Any, at: Any) -> Any:
    return builder.bitcast(builder.gep(row, [at]), _VECTOR.as_pointer())


def _all_lanes(builder: Any, lanes: Any) -> list[Any]:
    places = [builder.gep(lanes, [ir.Constant(LONG, number * LANES)]) for number in range(LANES)]
    return [builder.load(builder.bitcast(place, FLOATS.as_pointer()), align=4) for place in places]


add_whole = _adder(is_first=True, is_last=True)
add_first, add_next, add_last = (
    _adder(is_first=True, is_last=False), _adder(is_first=False, is_last=False), _adder(is_first=False, is_last=True)
)  # fmt: skip
