"""Products of several queries with several keys, and sums of values with several shares, whose numbers are read once.

Each has the bits that one product (sums.py) or one sum after the other has. How many are computed at once depends on
how many vectors the CPU holds.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from models.kernels.vectors import (
    FLOAT,
    FLOATS,
    FOUR,
    LANES,
    LONG,
    called,
    four_joined,
    numbers_at,
    repeated,
    sixteen_joined,
    spread,
    write_fours,
)  # fmt: skip

LINE = 64
"""Bytes that a CPU reads at once."""
AHEAD = 32
"""Values whose memory is being read before they are needed: `places` has so many more, wherever they are."""


def _tile(rows: int, *, is_stream: bool) -> Any:
    """Of so many rows and four others. `is_stream`: those are read from memory, one four after the other."""

    @intrinsic
    def multiply(_typing: Any, asked: Any, a: Any, b: Any, c: Any, d: Any, size: Any, scores: Any, longest: Any) -> Any:
        """The products of the rows of `asked` [rows, size] with the rows `a` to `d`, into `scores` [rows, longest]."""

        def generated(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            asked, *keys, size, scores, longest = arguments
            queries = [builder.gep(asked, [builder.mul(size, ir.Constant(LONG, number))]) for number in range(rows)]
            whole = builder.and_(size, ir.Constant(LONG, -LANES))
            later = builder.mul(size, ir.Constant(LONG, FOUR * signature.args[1].dtype.bitwidth // 8))

            def sums(span: Any, shape: Any) -> list[Any]:
                def body(at: Any, found: list[Any]) -> list[Any]:
                    if is_stream and shape is FLOATS:
                        for key in keys:
                            fetch(builder, builder.add(builder.ptrtoint(builder.gep(key, [at]), LONG), later))
                    theirs = [numbers_at(builder, key, at, shape, signature.args[1]) for key in keys]
                    ours = [numbers_at(builder, query, at, shape, signature.args[0]) for query in queries]
                    pairs = [(one, other) for one in ours for other in theirs]
                    return [called(builder, "fma", shape, *pair, one) for pair, one in zip(pairs, found, strict=True)]

                zero = ir.Constant(shape, None if shape is FLOATS else 0.0)
                return repeated(builder, span, [zero] * (rows * FOUR), body)

            lanes = sums((ir.Constant(LONG, 0), whole, LANES), FLOATS)
            rest = sums((whole, size, 1), FLOAT)
            write_fours(builder, builder.fadd(_joined(builder, lanes), _vector(builder, rest)), scores, longest)
            return context.get_dummy_value()

        return types.void(asked, a, b, c, d, size, scores, longest), generated

    return multiply


def _joined(builder: Any, lanes: list[Any]) -> Any:
    """The sums of all lanes as one vector."""
    if len(lanes) == LANES:
        return sixteen_joined(builder, lanes)
    fours = (lanes[at : at + FOUR] for at in range(0, len(lanes), FOUR))
    return _vector(builder, [one for four in fours for one in four_joined(builder, four)])


def _vector(builder: Any, numbers: list[Any]) -> Any:
    found: Any = ir.Constant(ir.VectorType(FLOAT, len(numbers)), ir.Undefined)
    for number, one in enumerate(numbers):
        found = builder.insert_element(found, one, ir.Constant(ir.IntType(32), number))
    return found


@intrinsic
def prefetch(_typing: Any, address: Any, size: Any) -> Any:
    """Begin to read `size` bytes."""

    def generated(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        address, size = arguments

        def body(at: Any, _none: list[Any]) -> list[Any]:
            fetch(builder, builder.add(address, at))
            return []

        repeated(builder, (ir.Constant(LONG, 0), size, LINE), [], body)
        return context.get_dummy_value()

    return types.void(address, size), generated


def fetch(builder: Any, address: Any) -> None:
    """Begin to read the bytes around an address."""
    byte, flag = ir.IntType(8).as_pointer(), ir.IntType(32)
    kind = ir.FunctionType(ir.VoidType(), [byte, flag, flag, flag])
    function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
    is_read, is_near, is_data = ir.Constant(flag, 0), ir.Constant(flag, 3), ir.Constant(flag, 1)
    builder.call(function, [builder.inttoptr(address, byte), is_read, is_near, is_data])


four_by_four = _tile(FOUR, is_stream=False)
one_by_four, two_by_four, three_by_four, four_by_streamed = (_tile(number, is_stream=True) for number in (1, 2, 3, 4))


def _adder(queries: int, vectors: int) -> Any:
    """Of so many queries and so many vectors of their sums; no vector is a single number."""
    shape, step = (FLOATS, LANES) if vectors else (FLOAT, 1)
    numbers_read = step * max(vectors, 1)

    @intrinsic
    def add(
        _typing: Any, sums: Any, size: Any, shares: Any, longest: Any, places: Any, behind: Any, row: Any, count: Any
    ) -> Any:
        """Add to `sums` [queries, size] `count` values with their `shares` [queries, longest]. The values are `behind`
        the `places` by so many bytes; `row` tells what numbers they are.
        """

        def generated(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            sums, size, shares, longest, places, behind, row, count = arguments
            stores = []
            for query in range(queries):
                first = builder.mul(size, ir.Constant(LONG, query))
                for vector in range(max(vectors, 1)):
                    at = builder.add(first, ir.Constant(LONG, step * vector))
                    stores.append(builder.bitcast(builder.gep(sums, [at]), shape.as_pointer()))

            def body(index: Any, found: list[Any]) -> list[Any]:
                begin = builder.add(builder.load(builder.gep(places, [index])), behind)
                value = builder.inttoptr(begin, row.type)
                later = builder.load(builder.gep(places, [builder.add(index, ir.Constant(LONG, AHEAD))]))
                for offset in range(0, numbers_read * (signature.args[6].dtype.bitwidth // 8), LINE):
                    fetch(builder, builder.add(builder.add(later, behind), ir.Constant(LONG, offset)))
                offsets = [ir.Constant(LONG, step * vector) for vector in range(max(vectors, 1))]
                numbers = [numbers_at(builder, value, at, shape, signature.args[6]) for at in offsets]
                made: list[Any] = []
                for query in range(queries):
                    at = builder.add(builder.mul(longest, ir.Constant(LONG, query)), index)
                    share = spread(builder, builder.load(builder.gep(shares, [at])), shape)
                    for one in numbers:
                        made.append(called(builder, "fma", shape, share, one, found[len(made)]))
                return made

            given = [builder.load(place, align=4) for place in stores]
            found = repeated(builder, (ir.Constant(LONG, 0), count, 1), given, body)
            for one, place in zip(found, stores, strict=True):
                builder.store(one, place, align=4)
            return context.get_dummy_value()

        return types.void(sums, size, shares, longest, places, behind, row, count), generated

    return add


four_add_wide, four_add_vector, four_add_number = _adder(4, 4), _adder(4, 1), _adder(4, 0)
one_adds_wide, one_adds_vector, one_adds_number = _adder(1, 4), _adder(1, 1), _adder(1, 0)
