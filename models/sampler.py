"""Draw the next token of many answers at once.

A row's token is `argmax(logits / temperature + noise(seed, index))` over what its filters keep: an exact sample of its
distribution that no other row of the batch can influence. Temperature 0 takes the largest logit, and so does a
temperature so small that the result is the same. A row whose logits are not finite has no token; it is detected here,
so that the other rows continue.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from math import isfinite
from typing import NamedTuple

import torch
from torch import Tensor

from models.generation import Sampling, TokenLogprob
from models.noise import gumbel, key
from models.torchscript import compiled

COLDEST = 1e-5  # up to this temperature the largest logit is taken: float32 cannot divide by less


@dataclass(slots=True, eq=False)  # not frozen, which would triple the cost: one is created per row and step
class Draw:
    """How the next token of one row is drawn; `tokens` are its prompt and the `index` tokens of its answer so far.

    `allowed` is a bit mask of the tokens that may be drawn, token 0 being the lowest bit of the first byte; None: all.
    `forbidden` tokens are not drawn if others are left.
    """

    sampling: Sampling
    index: int
    tokens: Sequence[int] = ()
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
        for row, draw in enumerate(self._draws):
            if draw.sampling.logprobs is not None and found[row].finite:
                token = found[row].token
                logprob = _logprob(self._logits[row], token, draw.sampling.logprobs)
                found[row] = Token(token, finite=True, logprob=logprob)
        return found


def sample(logits: Tensor, draws: Sequence[Draw]) -> Drawn:
    """One token for each row of `logits` [rows, vocabulary]."""
    scores = _adjusted(logits, draws)
    random = [(row, draw.sampling) for row, draw in enumerate(draws) if draw.sampling.temperature > COLDEST]
    tokens, best = _chooser(logits.device.type)(
        scores,
        [row for row, _ in random],
        [list(key(sampling.seed, draws[row].index)) for row, sampling in random],
        [sampling.temperature for _, sampling in random],
        [sampling.top_k for _, sampling in random],
        [sampling.top_p for _, sampling in random],
        [sampling.min_p for _, sampling in random],
    )
    return Drawn(logits, draws, tokens, best)


def _sent(found: Tensor) -> Tensor:
    """Host memory to which the device copies asynchronously."""
    return torch.empty(found.shape, dtype=found.dtype, pin_memory=True).copy_(found, non_blocking=True)


@cache
def _chooser(device: str) -> Callable[..., tuple[Tensor, Tensor]]:
    """`choose`; on a CPU as a script, which releases the GIL once (models/torchscript.py)."""
    return compiled(choose) if device == "cpu" else choose


def _adjusted(logits: Tensor, draws: Sequence[Draw]) -> Tensor:
    """Apply penalties, biases and output constraints of those rows that have any."""
    rows = [row for row, draw in enumerate(draws) if adjusts(draw.sampling)]
    constrained = [row for row, draw in enumerate(draws) if draw.allowed is not None]
    curbed = [row for row, draw in enumerate(draws) if draw.forbidden]
    if not rows and not constrained and not curbed:
        return logits
    logits = logits.clone()
    for row in rows:
        sampling, tokens, index = draws[row].sampling, draws[row].tokens, draws[row].index
        if sampling.repetition_penalty != 1 and tokens:
            generated = torch.tensor(sorted(set(tokens)), device=logits.device)
            values = logits[row, generated]
            penalty = sampling.repetition_penalty
            logits[row, generated] = torch.where(values > 0, values / penalty, values * penalty)
        changes = {token: bias for token, bias in sampling.logit_bias if 0 <= token < logits.shape[1]}
        for token, count in Counter(tokens[len(tokens) - index :]).items():
            penalty = sampling.presence_penalty + sampling.frequency_penalty * count
            changes[token] = changes.get(token, 0.0) - penalty
        if changes:
            where = torch.tensor(list(changes), device=logits.device)
            logits[row, where] += torch.tensor(list(changes.values()), dtype=logits.dtype, device=logits.device)
    if constrained:
        outside = _outside([draws[row].allowed or b"" for row in constrained], logits.shape[1], logits.device)
        at = torch.tensor(constrained, device=logits.device)
        logits[at] = logits[at].masked_fill(outside, -torch.inf)
    for row in curbed:
        rest = logits[row].clone()
        rest[list(draws[row].forbidden)] = -torch.inf
        # A complete output constraint allows only the end.
        if bool((rest > -torch.inf).any()):
            logits[row] = rest
    return logits


def _outside(allowed: Sequence[bytes], vocabulary: int, device: torch.device) -> Tensor:
    """Where the bit is not set: [rows, vocabulary]."""
    packed = torch.frombuffer(bytearray(b"".join(allowed)), dtype=torch.uint8).view(len(allowed), -1).to(device)
    bits = packed.unsqueeze(-1) >> torch.arange(8, dtype=torch.uint8, device=device)
    return (bits & 1).view(len(allowed), -1)[:, :vocabulary] == 0


def adjusts(sampling: Sampling) -> bool:
    """Whether the answer so far influences how the next token is drawn."""
    return bool(
        sampling.logit_bias
        or sampling.presence_penalty
        or sampling.frequency_penalty
        or sampling.repetition_penalty != 1
    )


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
    values, order = likeliest(scores, min(max(most), width))  # no more than some row can keep
    values = filter_scores(values, moved_to(torch.tensor(most), scores).unsqueeze(1), top_p, min_p)
    picked = (values + gumbel(keys, order.int())).argmax(dim=-1, keepdim=True)
    return order.gather(1, picked).squeeze(1)


def likeliest(scores: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` largest of each row and their tokens. Of equal ones, which half precision has in plenty, the lower
    token is first: what a row keeps must not depend on how many its neighbours keep.
    """
    width = scores.size(1)
    if count == width:
        return scores.sort(dim=-1, descending=True, stable=True)
    bits = torch.view_copy(scores + 0.0, dtype=torch.int32)  # + 0.0: there is a zero with a sign, too
    bits = torch.where(bits < 0, bits ^ 0x7FFFFFFF, bits).long()  # these are in the order of the scores
    tokens = torch.arange(width - 1, -1, -1, device=scores.device)
    found = (bits * (1 << 32) + tokens).topk(count, dim=-1)[0]
    order = width - 1 - (found & 0xFFFFFFFF)
    return scores.gather(1, order), order


def filter_scores(values: Tensor, most: Tensor, top_p: Tensor, min_p: Tensor) -> Tensor:
    """top_k (`most`) first, then top_p and min_p of the rest; the likeliest token always stays."""
    values = values.masked_fill(torch.arange(values.size(1), device=values.device) >= most, -math.inf)
    likely = values.double().softmax(dim=-1)  # double: the last bits depend on the width of the rows
    outside = likely < likely[:, :1] * min_p
    above = likely.cumsum(dim=-1) - likely  # the sum over more likely tokens
    outside = outside | ((above >= top_p) & (top_p < 1))
    outside[:, 0] = False
    return values.masked_fill(outside, -math.inf)


def _logprob(logits: Tensor, token: int, top: int) -> TokenLogprob:
    logprobs = logits.float().log_softmax(dim=-1)
    best = logprobs.topk(min(top, len(logprobs)))
    likeliest = tuple(zip(best.indices.tolist(), best.values.tolist(), strict=True))
    return TokenLogprob(token, float(logprobs[token]), likeliest)
