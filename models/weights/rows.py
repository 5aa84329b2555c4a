"""With how many rows a product is computed, so that each row has the same bits whatever stands beside it.

Libraries choose their code by the number of rows, and each code adds in an order of its own. oneDNN computes a lone row
of some shapes otherwise, in float32 and in bfloat16, and MKL the last one to three of a few; which, depends on the CPU
and on the threads. So it is tried at load with the model's own weights, once for a machine and a shape: every number of
rows with which some row has other bits is avoided by rows that nobody reads. Where no such limit is found, rows are
multiplied in parts of `PART`.
Products of integers and of stored weights need neither.
"""

from __future__ import annotations

import itertools
import logging
import threading
import zlib
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch import Tensor

from models.machine import measurements
from models.weights.matrix import Matrix, Rows, product
from models.weights.replacing import is_linear, served, weight_and_bias
from models.weights.threads import computing_threads

log = logging.getLogger(__name__)

COUNTS = (*range(1, 34), 47, 48, 63, 64, 65, 96, 127, 128, 129, 192, 255, 256, 257, 384, 512)
FEWER = (*range(1, 10), 12, 15, 16, 17, 31, 32, 33, 64, 128, 256)
"""For weights of more than `LARGE` elements, which take their time."""
LARGE, MOST_OUTPUTS = 1 << 24, 1 << 25
LONE = 1
"""A lone row always has a neighbour: in bfloat16 most of its results are the same by chance."""
MOST_LEAST = 32
PART = 16
_AT, _RESULTS = 5, 1 << 17
"""Rows are compared at other places, too, and as many as have so many results: rounding hides most differences."""
_SUBJECT = "rows with other bits"
_TRIED = zlib.crc32(repr((COUNTS, FEWER, LARGE, MOST_OUTPUTS, _AT, _RESULTS)).encode())
"""Who tries other numbers of rows tries them anew."""
_alone = threading.Lock()


def rows_of(matrices: Iterable[Matrix], threads: Sequence[int] = (1,)) -> Rows:
    """Those with which all of `matrices` compute each row in one way, by any of the numbers of `threads`."""
    floating = [one for one in matrices if not one.has_one_way and one.parts[0].device.type == "cpu"]
    if not floating:
        return Rows()
    # A thread of its own, with which those end that OpenMP makes for it (models/checkpoints/loading.py, `_load`).
    with _alone, ThreadPoolExecutor(1, "rows") as apart:
        others = apart.submit(_with_other_bits, floating, tuple(dict.fromkeys(threads)) or (1,)).result()
    least = max({LONE, *others}) + 1
    if least <= MOST_LEAST:
        return Rows(least)
    log.info("products on this CPU have other bits with %d rows: they are computed %d at a time", least - 1, PART)
    return Rows(PART, PART)


def keep_rows_alike(model: Any, threads: Sequence[int]) -> None:
    """Let the layers of `model`, of any class, compute each row in one way."""
    plain = [one for one in model.modules() if is_linear(one)]
    own = [one.matrix for one in served(model) if isinstance(one.matrix, Matrix)]
    rows = rows_of([*own, *map(_matrix, plain)], threads)
    for one in own:
        one.rows = rows
    for layer in plain if rows != Rows() else ():
        layer.forward = _Plain(layer, rows)


class _Plain:
    """What a plain layer computes, by enough rows. Not its parameters' owner: they stay those of the layer."""

    def __init__(self, layer: Any, rows: Rows) -> None:
        self._layer, self._rows = layer, rows

    def __call__(self, given: Tensor) -> Tensor:
        one = _matrix(self._layer)
        one.rows = self._rows
        return one.times(given.reshape(-1, given.shape[-1])).view(*given.shape[:-1], -1)


def _matrix(layer: Any) -> Matrix:
    weight, bias = weight_and_bias(layer)
    return Matrix([weight], bias)


@torch.inference_mode()
def _with_other_bits(matrices: Sequence[Matrix], threads: Sequence[int]) -> frozenset[int]:
    """The numbers of rows with which some row of some matrix has other bits than with most."""
    known, tried = measurements.read(_SUBJECT), dict[str, list[int]]()
    for one in matrices:
        (weight,) = one.parts
        key = _key(weight, threads)
        if key not in known:
            known[key] = tried[key] = sorted(_of_one(weight, threads))
    if tried:
        measurements.keep(_SUBJECT, tried)
    return frozenset(count for one in matrices for count in known[_key(one.parts[0], threads)])


def _key(weight: Tensor, threads: Sequence[int]) -> str:
    order = "packed" if weight.is_mkldnn else f"strides {weight.stride()}"
    return f"{tuple(weight.shape)} {order} {weight.dtype}, threads {tuple(threads)}, counts {_TRIED}"


def _of_one(weight: Tensor, threads: Sequence[int]) -> frozenset[int]:
    outputs, inputs = weight.shape
    tried = FEWER if weight.numel() > LARGE else COUNTS
    counts = [each for each in tried if each <= 2 or each * outputs <= MOST_OUTPUTS]
    chance = torch.Generator().manual_seed(1)
    given = torch.randn(counts[-1] + _AT, inputs, generator=chance).to(weight.dtype)
    found = set()
    with computing_threads(threads[0]):
        whole = product(given, [weight], [], None, 1, 0)
    for number, count in itertools.product(threads, counts[1:]):
        with computing_threads(number):
            for first in range(_AT, min(_AT + max(1, _RESULTS // outputs), len(given) - count + 1), count):
                part = product(given[first : first + count].clone(), [weight], [], None, 1, 0)
                if not torch.equal(part, whole[first : first + count]):
                    found.add(count)
                    break
    return frozenset(found)
