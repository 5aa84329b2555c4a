"""Draws the next token of many answers at once.

A row's token is `argmax(logits / temperature + noise(seed, index))` over what its filters leave: an exact draw from
its distribution that no other row of the batch can change. Temperature 0 takes the largest logit. A row whose logits
are not finite has no token; it is told apart here, so that its neighbours go on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from typing import NamedTuple

import torch
from torch import Tensor

from models.generation import Sampling, TokenLogprob
from models.noise import gumbel, key


@dataclass(slots=True, eq=False)  # not frozen, which takes three times as long: one a row and step
class Draw:
    """How the next token of one row is drawn; `tokens` are its prompt and the `index` tokens of its answer so far.

    `allowed` has a bit for each token that may be drawn, the lowest bit of the first byte being token 0; None: all.
    """

    sampling: Sampling
    index: int
    tokens: Sequence[int] = ()
    allowed: bytes | None = None


class Token(NamedTuple):
    """A drawn token; not to be used where the row's logits were not `finite`."""

    token: int
    finite: bool
    logprob: TokenLogprob | None = None


def sample(logits: Tensor, draws: Sequence[Draw]) -> list[Token]:
    """One token for each row of `logits` [rows, vocabulary]."""
    scores = _adjusted(logits, draws)
    best = scores.max(dim=-1)  # NaN is the largest of all, so this also tells whether a row is finite
    tokens = best.indices
    random = [row for row, draw in enumerate(draws) if draw.sampling.temperature > 0]
    if len(random) == len(draws):
        tokens = _draw(scores.float(), draws)
    elif random:
        rows = torch.tensor(random, device=logits.device)
        drawn = _draw(scores.index_select(0, rows).float(), [draws[row] for row in random])
        tokens = tokens.index_copy(0, rows, drawn)
    found = list(map(Token, tokens.tolist(), map(isfinite, best.values.tolist())))
    for row, draw in enumerate(draws):
        if draw.sampling.logprobs is not None and found[row].finite:
            token = found[row].token
            found[row] = Token(token, finite=True, logprob=_logprob(logits[row], token, draw.sampling.logprobs))
    return found


def _adjusted(logits: Tensor, draws: Sequence[Draw]) -> Tensor:
    """With the penalties and biases of the rows that have some, and without what their shapes do not allow."""
    rows = [row for row, draw in enumerate(draws) if _adjusts(draw.sampling)]
    shaped = [row for row, draw in enumerate(draws) if draw.allowed is not None]
    if not rows and not shaped:
        return logits
    logits = logits.clone()
    for row in rows:
        sampling, tokens, index = draws[row].sampling, draws[row].tokens, draws[row].index
        if sampling.repetition_penalty != 1 and tokens:
            seen = torch.tensor(sorted(set(tokens)), device=logits.device)
            values = logits[row, seen]
            penalty = sampling.repetition_penalty
            logits[row, seen] = torch.where(values > 0, values / penalty, values * penalty)
        changes = {token: bias for token, bias in sampling.logit_bias if 0 <= token < logits.shape[1]}
        for token, count in Counter(tokens[len(tokens) - index :]).items():
            penalty = sampling.presence_penalty + sampling.frequency_penalty * count
            changes[token] = changes.get(token, 0.0) - penalty
        if changes:
            where = torch.tensor(list(changes), device=logits.device)
            logits[row, where] += torch.tensor(list(changes.values()), dtype=logits.dtype, device=logits.device)
    if shaped:
        outside = _outside([draws[row].allowed or b"" for row in shaped], logits.shape[1], logits.device)
        at = torch.tensor(shaped, device=logits.device)
        logits[at] = logits[at].masked_fill(outside, -torch.inf)
    return logits


def _outside(allowed: Sequence[bytes], vocabulary: int, device: torch.device) -> Tensor:
    """Where no bit is set: [rows, vocabulary]."""
    packed = torch.frombuffer(bytearray(b"".join(allowed)), dtype=torch.uint8).view(len(allowed), -1).to(device)
    bits = packed.unsqueeze(-1) >> torch.arange(8, dtype=torch.uint8, device=device)
    return (bits & 1).view(len(allowed), -1)[:, :vocabulary] == 0


def _adjusts(sampling: Sampling) -> bool:
    return bool(
        sampling.logit_bias
        or sampling.presence_penalty
        or sampling.frequency_penalty
        or sampling.repetition_penalty != 1
    )


def _draw(logits: Tensor, draws: Sequence[Draw]) -> Tensor:
    device = logits.device
    keys = torch.tensor([key(draw.sampling.seed, draw.index) for draw in draws], dtype=torch.int32, device=device)
    scores = logits / _column([draw.sampling.temperature for draw in draws], device)
    if not any(_filters(draw.sampling) for draw in draws):
        tokens = torch.arange(scores.shape[1], dtype=torch.int32, device=device).unsqueeze(0)
        return (scores + gumbel(keys, tokens)).argmax(dim=-1)
    values, order = _candidates(scores, draws)
    values = _filtered(values, draws)
    picked = (values + gumbel(keys, order.int())).argmax(dim=-1, keepdim=True)
    return order.gather(1, picked).squeeze(1)


def _filters(sampling: Sampling) -> bool:
    return sampling.top_k > 0 or sampling.top_p < 1 or sampling.min_p > 0


def _candidates(scores: Tensor, draws: Sequence[Draw]) -> tuple[Tensor, Tensor]:
    """Scores in falling order, with their tokens; no more than some row can keep."""
    widest = max(draw.sampling.top_k if draw.sampling.top_k > 0 else scores.shape[1] for draw in draws)
    if widest < scores.shape[1]:
        values, order = scores.topk(widest, dim=-1)
    else:
        values, order = scores.sort(dim=-1, descending=True, stable=True)
    return values, order


def _filtered(values: Tensor, draws: Sequence[Draw]) -> Tensor:
    """top_k first, then top_p and min_p of what it left; the most likely token always stays."""
    device, width = values.device, values.shape[1]
    most = torch.tensor([[draw.sampling.top_k if draw.sampling.top_k > 0 else width] for draw in draws], device=device)
    values = values.masked_fill(torch.arange(width, device=device) >= most, -torch.inf)
    likely = values.softmax(dim=-1)
    outside = likely < likely[:, :1] * _column([draw.sampling.min_p for draw in draws], device)
    mass = _column([draw.sampling.top_p for draw in draws], device)
    above = likely.cumsum(dim=-1) - likely  # what the more likely tokens have together
    outside |= (above >= mass) & (mass < 1)
    outside[:, 0] = False
    return values.masked_fill(outside, -torch.inf)


def _column(values: Sequence[float], device: torch.device) -> Tensor:
    return torch.tensor(values, dtype=torch.float32, device=device).unsqueeze(1)


def _logprob(logits: Tensor, token: int, top: int) -> TokenLogprob:
    logprobs = logits.float().log_softmax(dim=-1)
    best = logprobs.topk(min(top, len(logprobs)))
    told = tuple(zip(best.indices.tolist(), best.values.tolist(), strict=True))
    return TokenLogprob(token, float(logprobs[token]), told)
