"""Sums whose order is written down, so that every compiler and every CPU gives them the same bits.

Each of 16 lanes adds every sixteenth product by a fused multiplication; the lanes are then added in halves. What is
left of a row that 16 does not divide is added by itself. LLVM makes of the lanes what the CPU has: two vectors with
AVX2, four on AArch64.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
_FOUR = 4
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
def add_four(_typing: Any, sums: Any, factors: Any, a: Any, b: Any, c: Any, d: Any, count: Any) -> Any:
    """Add to each of `count` sums the products of four rows with the four factors, one after the other."""

    def generated(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        sums, factors, *rows, count = arguments
        shares = [builder.load(builder.gep(factors, [ir.Constant(_LONG, number)])) for number in range(_FOUR)]
        whole = builder.and_(count, ir.Constant(_LONG, -LANES))
        for span, shape in (((ir.Constant(_LONG, 0), whole, LANES), _FLOATS), ((whole, count, 1), _FLOAT)):
            wide = [_spread(builder, share, shape) for share in shares]

            def body(at: Any, _none: list[Any], shape: Any = shape, wide: Any = wide) -> list[Any]:
                place = builder.bitcast(builder.gep(sums, [at]), shape.as_pointer())
                found = builder.load(place, align=4)
                for share, row in zip(wide, rows, strict=True):
                    numbers = _numbers(builder, row, at, shape, signature.args[2])
                    found = _called(builder, "fma", shape, share, numbers, found)
                builder.store(found, place, align=4)
                return []

            _repeated(builder, span, [], body)
        return context.get_dummy_value()

    return types.void(sums, factors, a, b, c, d, count), generated


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
    whole = _four_joined(builder, lanes) if len(lanes) == _FOUR else [_joined(builder, one, added) for one in lanes]
    return [builder.fadd(one, left) for one, left in zip(whole, rest, strict=True)]


def _folded(builder: Any, rows: Any, count: Any, kind: Any, combine: Combine) -> tuple[list[Any], list[Any]]:
    """Each row's lanes, and what is left."""
    whole = builder.and_(count, ir.Constant(_LONG, -LANES))
    lanes = _loop(builder, (ir.Constant(_LONG, 0), whole, LANES), _FLOATS, rows, kind, combine)
    return lanes, _loop(builder, (whole, count, 1), _FLOAT, rows, kind, combine)


def _loop(builder: Any, span: Any, shape: Any, rows: Any, kind: Any, combine: Combine) -> list[Any]:
    """What `combine` makes of zeros and the numbers of the span: its first place, its end, and the step."""

    def body(at: Any, found: list[Any]) -> list[Any]:
        return [
            combine(shape, _numbers(builder, row, at, shape, kind), at, one)
            for one, row in zip(found, rows, strict=True)
        ]

    zero = ir.Constant(shape, None if shape is _FLOATS else 0.0)
    return _repeated(builder, span, [zero] * len(rows), body)


def _repeated(builder: Any, span: Any, given: list[Any], body: Callable[[Any, list[Any]], list[Any]]) -> list[Any]:
    """What `body` makes of each place of the span and what it has made before, at first `given`."""
    first, end, step = span
    before = builder.block
    head, inside, after = (builder.append_basic_block(name) for name in ("head", "inside", "after"))
    builder.branch(head)
    builder.position_at_end(head)
    at, found = builder.phi(_LONG), [builder.phi(one.type) for one in given]
    at.add_incoming(first, before)
    for one, initial in zip(found, given, strict=True):
        one.add_incoming(initial, before)
    builder.cbranch(builder.icmp_signed("<", at, end), inside, after)
    builder.position_at_end(inside)
    for one, made in zip(found, body(at, found), strict=True):
        one.add_incoming(made, builder.block)
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


def _four_joined(builder: Any, rows: list[Any]) -> list[Any]:
    """The sums of four rows of lanes, each in the order of `_joined`, by fewer additions."""
    for width in (8, 4):
        places = ir.VectorType(ir.IntType(32), width)
        lower, upper = ir.Constant(places, list(range(width))), ir.Constant(places, list(range(width, 2 * width)))
        rows = [
            builder.fadd(
                builder.shuffle_vector(row, ir.Constant(row.type, ir.Undefined), lower),
                builder.shuffle_vector(row, ir.Constant(row.type, ir.Undefined), upper),
            )
            for row in rows
        ]
    two = [_paired(builder, rows[at], rows[at + 1], (0, 1, 4, 5), (2, 3, 6, 7)) for at in (0, 2)]
    found = _paired(builder, two[0], two[1], (0, 2, 4, 6), (1, 3, 5, 7))
    return [builder.extract_element(found, ir.Constant(ir.IntType(32), number)) for number in range(_FOUR)]


def _paired(builder: Any, one: Any, other: Any, first: Sequence[int], second: Sequence[int]) -> Any:
    """The sum of numbers of both at the places `first` and `second`."""
    places = ir.VectorType(ir.IntType(32), _FOUR)
    picked = [builder.shuffle_vector(one, other, ir.Constant(places, list(which))) for which in (first, second)]
    return builder.fadd(*picked)


def _spread(builder: Any, number: Any, shape: Any) -> Any:
    """`number` in all lanes of `shape`."""
    if shape is _FLOAT:
        return number
    zero = ir.Constant(ir.IntType(32), 0)
    one = builder.insert_element(ir.Constant(shape, ir.Undefined), number, zero)
    return builder.shuffle_vector(one, ir.Constant(shape, ir.Undefined), ir.Constant(_WORDS, None))
