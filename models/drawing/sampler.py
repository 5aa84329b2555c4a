"""Draw the next token of many answers at once.

A row's token is `argmax(logits / temperature + noise(seed, index))` over what its filters keep: an exact sample of its
distribution that no other row of the batch can influence. Temperature 0 takes the largest logit, and so does a
temperature so small that the result is the same. A row whose logits are not finite has no token; it is detected here,
so that the other rows continue.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import isfinite
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.jit import is_scripting  # type: ignore[attr-defined]

from models.drawing.likeliest import likeliest
from models.drawing.logit_changes import LogitChanges
from models.drawing.logprobs import logprobs_of
from models.drawing.noise import gumbel, key
from models.drawing.top_p import can_do_without_sorting, filter_all
from models.interface.generation import Sampling, TokenLogprob
from models.kernels import library as kernels
from models.kernels.schemas import NumberForm
from models.machine.torchscript import compiled

FORMS = {torch.float32: int(NumberForm.FLOAT32), torch.bfloat16: int(NumberForm.BFLOAT16)}
COLDEST = 1e-5  # up to this temperature the largest logit is taken: float32 cannot divide by less
Before = list[tuple[tuple[Tensor, ...], Tensor]]
"""Places of logits that a draw changes, and what was there."""


@dataclass(slots=True, eq=False)  # not frozen, which would triple the cost: one is created per row and step
class Draw:
    """How the next token of one row is drawn, the one at `index` of its answer.

    `changes` are those of its penalties and biases at that token; None: none. `allowed` is a bit mask of the tokens
    that may be drawn, token 0 being the lowest bit of the first byte; None: all. `forbidden` tokens are not drawn,
    unless no other one is `allowed`.
    """

    sampling: Sampling
    index: int
    changes: LogitChanges | None = None
    allowed: bytes | None = None
    forbidden: tuple[int, ...] = ()


class Token(NamedTuple):
    """A drawn token; invalid if the row's logits were not `finite`."""

    token: int
    finite: bool
    logprob: TokenLogprob | None = None


class Drawn:
    """The tokens of some rows, possibly still on their way from the device. `tokens` [rows] are on the device."""

    def __init__(self, logits: Tensor, draws: Sequence[Draw], tokens: Tensor, best: Tensor) -> None:
        self.tokens = tokens
        self._logits = logits
        self._draws = draws
        self._here = tokens, best
        self._arrived: torch.cuda.Event | None = None
        if tokens.is_cuda:
            self._here = _sent(tokens), _sent(best)
            self._arrived = torch.cuda.Event()
            self._arrived.record()

    def read(self) -> list[Token]:
        """Wait for them, and not for work that was submitted to the device later."""
        if self._arrived is not None:
            self._arrived.synchronize()
        tokens, best = self._here
        found = list(map(Token, tokens.tolist(), map(isfinite, best.tolist())))
        asked = {
            row: most
            for row, draw in enumerate(self._draws)
            if (most := draw.sampling.logprobs) is not None and found[row].finite
        }
        if asked:
            self._add_logprobs(found, asked)
        return found

    def _add_logprobs(self, found: list[Token], asked: Mapping[int, int]) -> None:
        """To these rows of `found`, each with so many of its likeliest tokens."""
        logprobs = logprobs_of(self._logits, [*asked], [found[row].token for row in asked], max(asked.values()))
        for (row, most), own, best in zip(asked.items(), logprobs.own.tolist(), logprobs.pairs(), strict=True):
            token = found[row].token
            found[row] = Token(token, finite=True, logprob=TokenLogprob(token, own, best[:most]))


def sample(logits: Tensor, draws: Sequence[Draw]) -> Drawn:
    """One token for each row of `logits` [rows, vocabulary], which are changed meanwhile."""
    width = logits.shape[1]
    allowed = {row: draw.allowed for row, draw in enumerate(draws) if draw.allowed is not None}
    masks = {row: _curbed(mask, draws[row].forbidden, width) for row, mask in allowed.items()}
    before: Before = []
    try:
        _adjust(before, logits, draws)
        if logits.device.type == "cpu" and logits.dtype in FORMS and kernels.load() is None:
            tokens, best = _by_kernel(logits.contiguous(), draws, masks)
        else:
            if masks:
                rows = _keep(before, logits, [*masks])
                logits[rows] = logits[rows].masked_fill(_outside(masks, logits), -torch.inf)
            tokens, best = _chosen(logits, draws)
    finally:
        for places, numbers in reversed(before):
            logits[places] = numbers
    return Drawn(logits, draws, tokens, best)


def _chosen(scores: Tensor, draws: Sequence[Draw]) -> tuple[Tensor, Tensor]:
    random = [(row, draw.sampling) for row, draw in enumerate(draws) if draw.sampling.temperature > COLDEST]
    return _chooser(scores.device.type)(
        scores,
        [row for row, _ in random],
        [list(key(sampling.seed, draws[row].index)) for row, sampling in random],
        [sampling.temperature for _, sampling in random],
        [sampling.top_k for _, sampling in random],
        [sampling.top_p for _, sampling in random],
        [sampling.min_p for _, sampling in random],
    )


def _by_kernel(scores: Tensor, draws: Sequence[Draw], masks: Mapping[int, bytes]) -> tuple[Tensor, Tensor]:
    """What `choose` returns of masked scores, some hundred times as fast for a large vocabulary (kernels/draw.py)."""
    rows, width = scores.shape
    assert rows == len(draws), "one draw for each row"
    asked = [draw.sampling for draw in draws]
    temperatures = [one.temperature if one.temperature > COLDEST else 0.0 for one in asked]
    keys = torch.tensor([key(draw.sampling.seed, draw.index) for draw in draws], dtype=torch.int64)
    filters = [[heat, one.top_p, one.min_p] for heat, one in zip(temperatures, asked, strict=True)]
    numbers = torch.tensor(filters, dtype=torch.float32)
    most = torch.tensor([one.top_k for one in asked], dtype=torch.int64)
    joined, places = _joined(masks, -(-width // 8))
    starts = torch.full((rows,), -1)
    starts[[*masks]] = torch.tensor(places, dtype=torch.int64)
    tokens, best = torch.empty(rows, dtype=torch.int64), torch.empty(rows)
    torch.ops.parley.draw(
        scores, keys, numbers, most, joined, starts, tokens, best, rows, 1, FORMS[scores.dtype], width
    )
    return tokens, best


def _joined(masks: Mapping[int, bytes], size: int) -> tuple[Tensor, range]:
    """`size` bytes of each mask, one behind the other, and where each starts."""
    whole = b"".join(mask[:size].ljust(size, b"\0") for mask in masks.values())
    places = range(0, len(whole), size)
    return torch.frombuffer(bytearray(whole or bytes(1)), dtype=torch.uint8), places


def _sent(found: Tensor) -> Tensor:
    """Host memory to which the device copies asynchronously."""
    return torch.empty(found.shape, dtype=found.dtype, pin_memory=True).copy_(found, non_blocking=True)


@cache
def _chooser(device: str) -> Callable[..., tuple[Tensor, Tensor]]:
    """`choose`; on a CPU as a script, which releases the GIL once (models/machine/torchscript.py)."""
    return compiled(choose) if device == "cpu" else choose


def _adjust(before: Before, logits: Tensor, draws: Sequence[Draw]) -> None:
    """Apply penalties and biases, and what is forbidden to rows without a mask, in place: a copy of all rows costs more
    than to draw from them. Each change first adds its places and their logits to `before`.
    """
    changed = {row: draw.changes for row, draw in enumerate(draws) if draw.changes is not None}
    if changed:
        _change(before, logits, changed)
    forbidden = [(row, token) for row, draw in enumerate(draws) if draw.allowed is None for token in draw.forbidden]
    if forbidden:
        places = _keep(before, logits, *zip(*forbidden, strict=True))
        logits[places] = -torch.inf


def _keep(before: Before, logits: Tensor, *places: Sequence[int] | NDArray[np.int64]) -> tuple[Tensor, ...]:
    at = tuple(moved_to(torch.tensor(one), logits) for one in places)
    before.append((at, logits[at]))
    return at


def _change(before: Before, logits: Tensor, changed: Mapping[int, LogitChanges]) -> None:
    """Apply the changes of these rows, all at once."""
    rows = np.repeat([*changed], [len(changes.tokens) for changes in changed.values()])
    tokens, factors, addends = (
        np.concatenate(parts)
        for parts in zip(*((one.tokens, one.factors, one.addends) for one in changed.values()), strict=True)
    )
    inside = np.flatnonzero((tokens >= 0) & (tokens < logits.shape[1]))
    if not len(inside):
        return
    places = _keep(before, logits, rows[inside], tokens[inside])
    _, values = before[-1]
    factor, addend = moved_to(torch.from_numpy(np.stack([factors[inside], addends[inside]])), logits)
    scaled = torch.where(values > 0, values / factor.float(), values * factor.float()).to(logits.dtype)
    logits[places] = scaled + addend.to(logits.dtype)


def _curbed(allowed: bytes, forbidden: tuple[int, ...], width: int) -> bytes:
    """The mask without the forbidden tokens, if others of `width` are left: a complete output constraint allows only
    the end.
    """
    if not forbidden:
        return allowed
    bits = bytearray(allowed[: width // 8 + 1].ljust(width // 8 + 1, b"\0"))
    bits[-1] &= (1 << width % 8) - 1
    for token in forbidden:
        if token < width:
            bits[token >> 3] &= ~(1 << (token & 7))
    return bytes(bits) if bits.strip(b"\0") else allowed


def _outside(masks: Mapping[int, bytes], logits: Tensor) -> Tensor:
    """Where the bit is not set: [masks, width]."""
    width = logits.shape[1]
    joined, _ = _joined(masks, -(-width // 8))
    packed = moved_to(joined.view(len(masks), -1, 1), logits)
    bits = packed >> torch.arange(8, dtype=torch.uint8, device=logits.device)
    return (bits & 1).view(len(masks), -1)[:, :width] == 0


def choose(
    scores: Tensor,
    rows: list[int],
    keys: list[list[int]],
    temperatures: list[float],
    top_k: list[int],
    top_p: list[float],
    min_p: list[float],
) -> tuple[Tensor, Tensor]:
    """The token of every row of `scores`, and the largest score. TorchScript compiles it.

    `rows` draw, with the noise of their `keys`; each of the other lists has one number for each of them.
    """
    best, tokens = scores.max(dim=-1)  # NaN is the largest of all, so this also shows whether a row is finite
    if len(rows) == 0:
        return tokens, best
    at = moved_to(torch.tensor(rows), scores)
    chosen = scores if len(rows) == scores.size(0) else scores.index_select(0, at)
    noise = moved_to(torch.tensor(keys, dtype=torch.int32), scores)
    # One tensor is one copy to a GPU.
    numbers = moved_to(torch.tensor([temperatures, top_p, min_p], dtype=torch.float32), scores).unsqueeze(-1)
    temperature, mass, least = numbers.unbind(0)
    filtered = max(top_k) > 0  # read from the lists: reading tensors would wait for a GPU
    for row in range(len(rows)):
        filtered = filtered or top_p[row] < 1 or min_p[row] > 0
    scaled = chosen.float() / temperature
    drawn = draw_filtered(scaled, noise, top_k, mass, least) if filtered else draw_tokens(scaled, noise)
    return tokens.index_copy(0, at, drawn), best


def moved_to(numbers: Tensor, like: Tensor) -> Tensor:
    """On the device of `like`; from pinned memory, or a GPU would have to finish all its work first."""
    if like.is_cuda:
        return numbers.pin_memory().to(like.device, non_blocking=True)
    return numbers


def draw_tokens(scores: Tensor, keys: Tensor) -> Tensor:
    tokens = torch.arange(scores.size(1), dtype=torch.int32, device=scores.device).unsqueeze(0)
    return (scores + gumbel(keys, tokens)).argmax(dim=-1)


def draw_filtered(scores: Tensor, keys: Tensor, top_k: list[int], top_p: Tensor, min_p: Tensor) -> Tensor:
    """`top_p` and `min_p` are [rows, 1]."""
    width = scores.size(1)
    most = [number if number > 0 else width for number in top_k]
    limits = moved_to(torch.tensor(most), scores).unsqueeze(1)
    # Merged with the next condition, TorchScript would compile the guarded code.
    if not is_scripting():  # noqa: SIM102
        if scores.is_cuda and max(most) >= width and can_do_without_sorting(scores.device):
            return draw_tokens(filter_all(scores, limits, top_p, min_p), keys)
    values, order = likeliest(scores, min(max(most), width))  # no more than some row can keep
    values = filter_scores(values, limits, top_p, min_p)
    picked = (values + gumbel(keys, order.int())).argmax(dim=-1, keepdim=True)
    return order.gather(1, picked).squeeze(1)


def filter_scores(values: Tensor, most: Tensor, top_p: Tensor, min_p: Tensor) -> Tensor:
    """top_k (`most`) first, then top_p and min_p of the rest; the likeliest token always stays."""
    values = values.masked_fill(torch.arange(values.size(1), device=values.device) >= most, -math.inf)
    likely = values.double().softmax(dim=-1)  # double: the last bits depend on the width of the rows
    outside = likely < likely[:, :1] * min_p
    above = likely.cumsum(dim=-1) - likely  # the sum over more likely tokens
    outside = outside | ((above >= top_p) & (top_p < 1))
    outside[:, 0] = False
    return values.masked_fill(outside, -math.inf)
