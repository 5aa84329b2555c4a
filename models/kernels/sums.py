"""Sums whose order is written down, so that every compiler and every CPU gives them the same bits.

Each of 16 lanes adds every sixteenth product by a fused multiplication; the lanes are then added in halves. What is
left of a row that 16 does not divide is added by itself. LLVM makes of the lanes what the CPU has: two vectors with
AVX2, four on AArch64.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

LANES = 16
_FLOAT, _LONG = ir.FloatType(), ir.IntType(64)
_FLOATS, _HALVES = ir.VectorType(_FLOAT, LANES), ir.VectorType(ir.IntType(16), LANES)
_WORDS = ir.VectorType(ir.IntType(32), LANES)
Combine = Callable[[Any, Any, Any, Any], Any]
"""Of a shape, the numbers at a place, that place, and what was found before."""
_UPPER = 16
"""Bits of a float32 of which a bfloat16 is the upper half."""


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
            return _called(builder, "maximum", shape, _called(builder, "fabs", shape, numbers), before)

        row, count = arguments
        (lanes,), (rest,) = _folded(builder, [row], count, signature.args[0], larger)
        return larger(_FLOAT, _joined(builder, lanes, larger), None, rest)

    return types.float32(row, count), generated


@intrinsic
def fma(_typing: Any, one: Any, other: Any, added: Any) -> Any:
    """`one * other + added`, rounded once."""

    def generated(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.fma(*arguments)

    return types.float32(one, other, added), generated


def _products(builder: Any, rows: Any, other: Any, count: Any, kinds: Any) -> list[Any]:
    """Of each of `rows` with `other`, or with ones."""

    def multiplied(shape: Any, numbers: Any, at: Any, before: Any) -> Any:
        factor = ir.Constant(shape, [1.0] * LANES if shape is _FLOATS else 1.0)
        if other is not None:
            factor = _numbers(builder, other, at, shape, kinds[1])
        return _called(builder, "fma", shape, numbers, factor, before)

    def added(_shape: Any, one: Any, _at: Any, other: Any) -> Any:
        return builder.fadd(one, other)

    lanes, rest = _folded(builder, rows, count, kinds[0], multiplied)
    return [builder.fadd(_joined(builder, one, added), left) for one, left in zip(lanes, rest, strict=True)]


def _folded(builder: Any, rows: Any, count: Any, kind: Any, combine: Combine) -> tuple[list[Any], list[Any]]:
    """Each row's lanes, and what is left."""
    whole = builder.and_(count, ir.Constant(_LONG, -LANES))
    lanes = _loop(builder, (ir.Constant(_LONG, 0), whole, LANES), _FLOATS, rows, kind, combine)
    return lanes, _loop(builder, (whole, count, 1), _FLOAT, rows, kind, combine)


def _loop(builder: Any, span: Any, shape: Any, rows: Any, kind: Any, combine: Combine) -> list[Any]:
    """What `combine` makes of zeros and the numbers of the span: its first place, its end, and the step."""
    first, end, step = span
    before = builder.block
    head, body, after = (builder.append_basic_block(name) for name in ("head", "body", "after"))
    builder.branch(head)
    builder.position_at_end(head)
    at = builder.phi(_LONG)
    found = [builder.phi(shape) for _ in rows]
    at.add_incoming(first, before)
    for one in found:
        one.add_incoming(ir.Constant(shape, None if shape is _FLOATS else 0.0), before)
    builder.cbranch(builder.icmp_signed("<", at, end), body, after)
    builder.position_at_end(body)
    for one, row in zip(found, rows, strict=True):
        one.add_incoming(combine(shape, _numbers(builder, row, at, shape, kind), at, one), builder.block)
    at.add_incoming(builder.add(at, ir.Constant(_LONG, step)), builder.block)
    builder.branch(head)
    builder.position_at_end(after)
    return found


def _called(builder: Any, name: str, shape: Any, *arguments: Any) -> Any:
    """LLVM's function of that name for one number or a vector of them."""
    kind = ir.FunctionType(shape, [shape] * len(arguments))
    many = f"v{shape.count}" if isinstance(shape, ir.VectorType) else ""
    full = f"llvm.{name}.{many}f32"
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, full), arguments)


def _numbers(builder: Any, row: Any, at: Any, shape: Any, kind: Any) -> Any:
    """One or 16 numbers of a row, in float32."""
    place = builder.gep(row, [at])
    if kind.dtype is types.float32:
        return builder.load(builder.bitcast(place, shape.as_pointer()), align=4)
    half, word = (_HALVES, _WORDS) if shape is _FLOATS else (ir.IntType(16), ir.IntType(32))
    bits = builder.zext(builder.load(builder.bitcast(place, half.as_pointer()), align=2), word)
    upper = ir.Constant(word, [_UPPER] * LANES if shape is _FLOATS else _UPPER)
    return builder.bitcast(builder.shl(bits, upper), shape)


def _joined(builder: Any, lanes: Any, combine: Combine) -> Any:
    """The upper half of the lanes is combined with the lower one, until one is left."""
    width = LANES
    while width > 1:
        width //= 2
        shape, places = ir.VectorType(_FLOAT, width), ir.VectorType(ir.IntType(32), width)
        undefined = ir.Constant(lanes.type, ir.Undefined)
        lower = builder.shuffle_vector(lanes, undefined, ir.Constant(places, list(range(width))))
        upper = builder.shuffle_vector(lanes, undefined, ir.Constant(places, list(range(width, 2 * width))))
        lanes = combine(shape, lower, None, upper)
    return builder.extract_element(lanes, ir.Constant(ir.IntType(32), 0))
