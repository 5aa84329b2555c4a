"""The data type, the forms of the products and the threads with which this CPU computes a model.

No flag of a processor tells. Of two with AVX512-BF16, one computed bfloat16 0.8 times as fast as float32 and one 2.3
times. Packed float32 is three times as fast as `linear` with 8 rows on one, and slower with one row on another. So it
is measured when a machine first loads a model of such sizes (models/machine/measurements.py), with the products of a
decode step of 1, 8 and 32 answers: those of an MLP, and a slice of the vocabulary's. Small weights stay float32 and
plain without a measurement.

What is not `CLEARLY` faster stays as it is. All products of a model have one form, as far as it `PAYS`. Both are
compared by the processor's time of one thread, so that machines of one kind come to the same result, busy or not. What
was chosen is part of the model's version, except the threads and the library that multiplies integers, which change no
bit: the faster one is used.
"""

from __future__ import annotations

import logging
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from models.machine import measurements
from models.weights.forms import PLAIN, Kind, Products
from models.weights.matrix import Matrix, Rows, column_major, matrix_of
from models.weights.threads import computing_threads, few_threads

log = logging.getLogger(__name__)

ROWS = (1, 8, 32)
CLEARLY = 1.25
PAYS = 1.1
HOPELESS = 5.0
SMALL = 16 << 20
"""Bytes of weights. Steps of smaller models take their time between the products."""
_SLICE = 1 << 24
"""Elements of the vocabulary's matrix that are measured."""
LEAST = 2
"""A lone row has a neighbour (rows.py)."""
_ROUNDS = 6
_MLPS = 2
"""Two matrices of an MLP are measured; with its third one and attention's, a layer takes about twice as long."""
_SUBJECT = "forms"
_RULES = (ROWS, CLEARLY, PAYS, HOPELESS, _SLICE, _ROUNDS)
"""Who compares otherwise compares anew."""
Times = tuple[float, ...]
"""Seconds for each of `ROWS`."""
Clock = Callable[[], float]
Allowed = Mapping[torch.dtype, Sequence[Products]]
"""The forms of each data type, the ones to prefer first."""


@dataclass(frozen=True, slots=True)
class FormChoice:
    """`threads` are 0 if they were not measured."""

    dtype: torch.dtype
    products: Products = PLAIN
    threads: int = 0


@dataclass(frozen=True, slots=True)
class Sizes:
    """Of a decoder. `layers` is how many it has, `vocabulary` the rows of its last matrix, `dtype` that in which its
    weights are stored.
    """

    hidden: int
    inner: int
    layers: int
    vocabulary: int
    dtype: torch.dtype = torch.float32

    @classmethod
    def of(cls, config: Any) -> Sizes | None:
        """None if a config of transformers does not have all of them as whole numbers."""
        text = config.get_text_config()
        names = ("hidden_size", "intermediate_size", "num_hidden_layers", "vocab_size")
        sizes = [one for name in names if isinstance(one := getattr(text, name, None), int) and one > 0]
        if len(sizes) < len(names):
            return None
        hidden, inner, layers, vocabulary = sizes
        return cls(hidden, inner, layers, vocabulary, config.dtype or torch.float32)


@dataclass(frozen=True, slots=True)
class StepPart:
    """Matrices by which rows of ones are multiplied one after the other, so many times in a step."""

    matrices: Sequence[Matrix]
    inputs: int
    times: float
    dtype: torch.dtype

    def seconds(self, rows: int, clock: Clock) -> float:
        found = torch.ones(rows, self.inputs, dtype=self.dtype)
        began = clock()
        for one in self.matrices:
            found = one.times(found)
        return self.times * (clock() - began)


@dataclass(frozen=True, slots=True)
class Measured:
    """The fastest forms in one data type, and their parts of a step."""

    products: Products
    parts: Sequence[StepPart]


def compared(*ways: Sequence[StepPart], clock: Clock = time.thread_time) -> list[Times]:
    """What each way takes: the shortest of rounds that take turns, after one that warms up."""
    found = [list[float]() for _ in ways]
    for rows in ROWS:
        for number in range(_ROUNDS + 1):
            for times, parts in zip(found, ways, strict=True):
                seconds = sum(part.seconds(rows, clock) for part in parts)
                if number == 0:
                    times.append(math.inf)
                else:
                    times[-1] = min(times[-1], seconds)
    return [tuple(times) for times in found]


def choose(sizes: Sizes, allowed: Allowed, threads: int = 0) -> FormChoice:
    """The first data type unless another is clearly faster, and the first of its forms unless another pays.

    `threads`: that many; 0: all cores but one, or all if that is clearly faster. Takes some seconds once.
    """
    key = f"{sizes}, {dict(allowed)}, threads {threads} of {_cores()}, rules {_RULES}"
    try:
        dtype, layers, vocabulary, count = measurements.read(_SUBJECT)[key]
        chosen = FormChoice(getattr(torch, dtype), Products(Kind(layers), Kind(vocabulary)), int(count))
    except (KeyError, ValueError, TypeError, AttributeError):
        chosen = _measured(sizes, allowed, threads)
        products = chosen.products
        kept = [_name(chosen.dtype), products.layers.value, products.vocabulary.value, chosen.threads]
        measurements.keep(_SUBJECT, {key: kept})
    return chosen


@torch.inference_mode()
def _measured(sizes: Sizes, allowed: Allowed, threads: int) -> FormChoice:
    with computing_threads(1):
        measured = {dtype: _measure(sizes, dtype, forms) for dtype, forms in allowed.items()}
        found = dict(zip(measured, compared(*(one.parts for one in measured.values())), strict=True))
    best, *others = measured
    for dtype in others:
        if ratio(found[best], found[dtype]) >= CLEARLY:
            best = dtype
    count, why = (threads, "set") if threads else _fastest_threads(measured[best].parts)
    chosen = FormChoice(best, measured[best].products, count)
    log.info(
        "products of a step of %s answers take %s on one core; chosen: %s, layers %s, vocabulary %s, threads %d (%s)",
        ", ".join(map(str, ROWS)),
        "; ".join(f"{_told(times)} ms in {_name(dtype)}" for dtype, times in found.items()),
        *(_name(best), chosen.products.layers, chosen.products.vocabulary, count, why),
    )
    return chosen


def _fastest_threads(parts: Sequence[StepPart]) -> tuple[int, str]:
    """How many, and why. The time that passes counts here, so on a busy machine fewer are faster."""
    cores = _cores()
    few, found = few_threads(), []
    if cores == 1:
        return 1, "the only core"
    for count in (few, cores):
        with computing_threads(count):
            found += compared(parts, clock=time.perf_counter)
    gain = ratio(*found)
    return cores if gain >= CLEARLY else few, f"{cores} are {gain:.2f} times as fast as {few}"


def _cores() -> int:
    return len(os.sched_getaffinity(0))


def _measure(sizes: Sizes, dtype: torch.dtype, allowed: Sequence[Products]) -> Measured:
    best = Measured(allowed[0], _parts(sizes, dtype, allowed[0]))
    for products in allowed[1:]:
        try:
            other = Measured(products, _parts(sizes, dtype, products))
            if _is_hopeless(best.parts, other.parts):
                continue
            before, after = compared(best.parts, other.parts)
        except (RuntimeError, AttributeError):  # a CPU or a torch without it
            continue
        if ratio(before, after) >= (1.0 if _have_the_same_bits(best.products, products) else PAYS):
            best = other
    return best


def _is_hopeless(best: Sequence[StepPart], other: Sequence[StepPart]) -> bool:
    """By a single row, after one that warms up. What stands in for a kernel that a CPU lacks may take a minute to
    compare.
    """

    def seconds(parts: Sequence[StepPart]) -> float:
        return min(sum(part.seconds(ROWS[0], time.thread_time) for part in parts) for _ in range(2))

    return seconds(other) > HOPELESS * seconds(best)


def _have_the_same_bits(one: Products, other: Products) -> bool:
    """Whether they differ by the library that multiplies integers only."""
    pairs = ((one.layers, other.layers), (one.vocabulary, other.vocabulary))
    return all(first is second or (first.is_integer and second.is_integer) for first, second in pairs)


def _parts(sizes: Sizes, dtype: torch.dtype, products: Products) -> list[StepPart]:
    rows = min(sizes.vocabulary, max(1, _SLICE // sizes.hidden))
    mlp = [(sizes.inner, sizes.hidden), (sizes.hidden, sizes.inner)]
    return [
        _part(mlp, products.layers, _MLPS * sizes.layers, dtype, sizes.dtype),
        _part([(rows, sizes.hidden)], products.vocabulary, sizes.vocabulary / rows, dtype, sizes.dtype),
    ]


def _part(
    shapes: Sequence[tuple[int, int]], kind: Kind, times: float, dtype: torch.dtype, stored: torch.dtype
) -> StepPart:
    matrices = []
    for shape in shapes:
        weight = torch.full(shape, 0.01, dtype=stored if kind is Kind.STORED else dtype)
        matrices.append(matrix_of(column_major(weight) if kind is Kind.PLAIN else weight, None, kind, dtype))
        matrices[-1].rows = Rows(LEAST)
    return StepPart(matrices, shapes[0][1], times, dtype)


def ratio(before: Times, after: Times) -> float:
    """How many times as fast `after` is: the geometric mean over `ROWS`."""
    return math.prod(one / other for one, other in zip(before, after, strict=True)) ** (1 / len(before))


def _told(times: Times) -> str:
    return ", ".join(f"{1000 * one:.1f}" for one in times)


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
