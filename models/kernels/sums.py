"""Sums whose order is written down, so that every compiler and every CPU gives them the same bits.

Each of 16 lanes adds every sixteenth product by a fused multiplication; the lanes are then added in halves. What is
left of a row that 16 does not divide is added by itself.
"""

from __future__ import annotations

import math
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from models.kernels.vectors import (
    FLOAT,
    FLOATS,
    FOUR,
    LANES,
    LONG,
    Combine,
    called,
    four_joined,
    joined,
    numbers_at,
    repeated,
)  # fmt: skip


@intrinsic
def dot(_typing: Any, one: Any, other: Any, count: Any) -> Any:
    """The product of two rows of `count` numbers, each of float32 or bfloat16."""

    def generated(_context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        (found,) = _products(builder, [arguments[0]], arguments[1], arguments[2], signature.args)
        return found

    return types.float32(one, other, count), generated


@intrinsic
def four_dots(_typing: Any, a: Any, b: Any, c: Any, d: Any, other: Any, count: Any) -> Any:
    """The products of four rows with `other`, which is read once."""

    def generated(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        found = _products(builder, arguments[:4], arguments[4], arguments[5], [signature.args[0], signature.args[4]])
        return context.make_tuple(builder, signature.return_type, found)

    return types.UniTuple(types.float32, 4)(a, b, c, d, other, count), generated


@intrinsic
def total(_typing: Any, row: Any, count: Any) -> Any:
    """The sum of a row of `count` numbers."""

    def generated(_context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        row, count = arguments
        (found,) = _products(builder, [row], None, count, signature.args)
        return found

    return types.float32(row, count), generated


@intrinsic
def largest(_typing: Any, row: Any, count: Any) -> Any:
    """The largest absolute value of a row of `count` numbers; NaN if one of them is."""

    def generated(_context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        def larger(shape: Any, numbers: Any, _at: Any, before: Any) -> Any:
            return called(builder, "maximum", shape, called(builder, "fabs", shape, numbers), before)

        row, count = arguments
        (lanes,), (rest,) = _folded(builder, [row], count, signature.args[0], larger)
        return larger(FLOAT, joined(builder, lanes, larger), None, rest)

    return types.float32(row, count), generated


@intrinsic
def highest(_typing: Any, row: Any, count: Any) -> Any:
    """The largest of a row of `count` numbers; NaN if one of them is."""

    def generated(_context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        def higher(shape: Any, numbers: Any, _at: Any, before: Any) -> Any:
            return called(builder, "maximum", shape, numbers, before)

        row, count = arguments
        (lanes,), (rest,) = _folded(builder, [row], count, signature.args[0], higher, least=-math.inf)
        return higher(FLOAT, joined(builder, lanes, higher), None, rest)

    return types.float32(row, count), generated


@intrinsic
def fma(_typing: Any, one: Any, other: Any, added: Any) -> Any:
    """`one * other + added`, rounded once."""

    def generated(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.fma(*arguments)

    return types.float32(one, other, added), generated


def _products(builder: Any, rows: Any, other: Any, count: Any, kinds: Any) -> list[Any]:
    """Of each of `rows` with `other`, or with ones."""

    def multiply(shape: Any, numbers: Any, at: Any, before: Any) -> Any:
        factor = ir.Constant(shape, [1.0] * LANES if shape is FLOATS else 1.0)
        if other is not None:
            factor = numbers_at(builder, other, at, shape, kinds[1])
        return called(builder, "fma", shape, numbers, factor, before)

    def added(_shape: Any, one: Any, _at: Any, other: Any) -> Any:
        return builder.fadd(one, other)

    lanes, rest = _folded(builder, rows, count, kinds[0], multiply)
    whole = four_joined(builder, lanes) if len(lanes) == FOUR else [joined(builder, one, added) for one in lanes]
    return [builder.fadd(one, left) for one, left in zip(whole, rest, strict=True)]


def _folded(
    builder: Any, rows: Any, count: Any, kind: Any, combine: Combine, least: float = 0.0
) -> tuple[list[Any], list[Any]]:
    """Each row's lanes, and what is left; both begin with `least`."""
    whole = builder.and_(count, ir.Constant(LONG, -LANES))
    lanes = _loop(builder, (ir.Constant(LONG, 0), whole, LANES), FLOATS, rows, kind, combine, least)
    return lanes, _loop(builder, (whole, count, 1), FLOAT, rows, kind, combine, least)


def _loop(builder: Any, span: Any, shape: Any, rows: Any, kind: Any, combine: Combine, least: float) -> list[Any]:
    """What `combine` makes of `least` and the numbers of the span: its first place, its end, and the step."""

    def body(at: Any, found: list[Any]) -> list[Any]:
        return [
            combine(shape, numbers_at(builder, row, at, shape, kind), at, one)
            for one, row in zip(found, rows, strict=True)
        ]

    given = ir.Constant(shape, [least] * LANES if shape is FLOATS else least)
    return repeated(builder, span, [given] * len(rows), body)
