"""Vectors of 16 lanes in LLVM's language: loops, loads, and what is made of lanes in an order that is written down.

LLVM makes of the lanes what the CPU has: one vector with AVX-512, two with AVX2, four on AArch64.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils

LANES = 16
FLOAT, LONG = ir.FloatType(), ir.IntType(64)
FLOATS = ir.VectorType(FLOAT, LANES)
_WORD, _HALF = ir.IntType(32), ir.IntType(16)
_WORDS, _HALVES = ir.VectorType(_WORD, LANES), ir.VectorType(_HALF, LANES)
Combine = Callable[[Any, Any, Any, Any], Any]
"""Of a shape, the numbers at a place, that place, and what was found before."""
FOUR = 4
_UPPER = 16
"""Bits of a float32 of which a bfloat16 is the upper half."""


def repeated(builder: Any, span: Any, given: list[Any], body: Callable[[Any, list[Any]], list[Any]]) -> list[Any]:
    """What `body` makes of each place of the span and what it has made before, at first `given`."""
    first, end, step = span
    before = builder.block
    head, inside, after = (builder.append_basic_block(name) for name in ("head", "inside", "after"))
    builder.branch(head)
    builder.position_at_end(head)
    at, found = builder.phi(LONG), [builder.phi(one.type) for one in given]
    at.add_incoming(first, before)
    for one, initial in zip(found, given, strict=True):
        one.add_incoming(initial, before)
    builder.cbranch(builder.icmp_signed("<", at, end), inside, after)
    builder.position_at_end(inside)
    for one, made in zip(found, body(at, found), strict=True):
        one.add_incoming(made, builder.block)
    at.add_incoming(builder.add(at, ir.Constant(LONG, step)), builder.block)
    builder.branch(head)
    builder.position_at_end(after)
    return found


def called(builder: Any, name: str, shape: Any, *arguments: Any) -> Any:
    """LLVM's function of that name for one number or a vector of them."""
    kind = ir.FunctionType(shape, [shape] * len(arguments))
    many = f"v{shape.count}" if isinstance(shape, ir.VectorType) else ""
    full = f"llvm.{name}.{many}f32"
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, full), arguments)


def numbers_at(builder: Any, row: Any, at: Any, shape: Any, kind: Any) -> Any:
    """One or 16 numbers of a row, in float32."""
    place = builder.gep(row, [at])
    if kind.dtype is types.float32:
        return builder.load(builder.bitcast(place, shape.as_pointer()), align=4)
    half, word = (_HALVES, _WORDS) if shape is FLOATS else (ir.IntType(16), _WORD)
    bits = builder.zext(builder.load(builder.bitcast(place, half.as_pointer()), align=2), word)
    upper = ir.Constant(word, [_UPPER] * LANES if shape is FLOATS else _UPPER)
    return builder.bitcast(builder.shl(bits, upper), shape)


def joined(builder: Any, lanes: Any, combine: Combine) -> Any:
    """The upper half of the lanes is combined with the lower one, until one is left."""
    width = LANES
    while width > 1:
        width //= 2
        shape, places = ir.VectorType(FLOAT, width), ir.VectorType(_WORD, width)
        undefined = ir.Constant(lanes.type, ir.Undefined)
        lower = builder.shuffle_vector(lanes, undefined, ir.Constant(places, list(range(width))))
        upper = builder.shuffle_vector(lanes, undefined, ir.Constant(places, list(range(width, 2 * width))))
        lanes = combine(shape, lower, None, upper)
    return builder.extract_element(lanes, ir.Constant(_WORD, 0))


def four_joined(builder: Any, rows: list[Any]) -> list[Any]:
    """The sums of four rows of lanes, each in the order of `joined`, by fewer additions."""
    for width in (8, 4):
        places = ir.VectorType(_WORD, width)
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
    return [builder.extract_element(found, ir.Constant(_WORD, number)) for number in range(FOUR)]


def sixteen_joined(builder: Any, rows: Sequence[Any]) -> Any:
    """The sums of 16 rows of lanes as one vector, each in the order of `joined`."""
    width = LANES
    while width > 1:
        width //= 2
        lower, upper = (
            ir.Constant(_WORDS, [lane for lane in range(2 * LANES) if lane // width % 2 == half]) for half in (0, 1)
        )
        rows = [
            builder.fadd(
                builder.shuffle_vector(rows[at], rows[at + 1], lower),
                builder.shuffle_vector(rows[at], rows[at + 1], upper),
            )
            for at in range(0, len(rows), 2)
        ]
    return rows[0]


def write_fours(builder: Any, sums: Any, out: Any, apart: Any) -> None:
    """Write a vector as rows of four, which are `apart` numbers from each other in `out`."""
    undefined = ir.Constant(sums.type, ir.Undefined)
    for number, at in enumerate(range(0, sums.type.count, FOUR)):
        places = ir.Constant(ir.VectorType(_WORD, FOUR), [*range(at, at + FOUR)])
        four = builder.shuffle_vector(sums, undefined, places)
        place = builder.gep(out, [builder.mul(apart, ir.Constant(LONG, number))])
        builder.store(four, builder.bitcast(place, four.type.as_pointer()), align=4)


def _paired(builder: Any, one: Any, other: Any, first: Sequence[int], second: Sequence[int]) -> Any:
    """The sum of numbers of both at the places `first` and `second`."""
    places = ir.VectorType(_WORD, FOUR)
    picked = [builder.shuffle_vector(one, other, ir.Constant(places, list(which))) for which in (first, second)]
    return builder.fadd(*picked)


def spread(builder: Any, number: Any, shape: Any) -> Any:
    """`number` in all lanes of `shape`."""
    if shape is FLOAT:
        return number
    zero = ir.Constant(_WORD, 0)
    one = builder.insert_element(ir.Constant(shape, ir.Undefined), number, zero)
    return builder.shuffle_vector(one, ir.Constant(shape, ir.Undefined), ir.Constant(_WORDS, None))
