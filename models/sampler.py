"""Draws the next token of many answers at once.

A row's token is `argmax(logits / temperature + noise(seed, index))` over what its filters leave: an exact draw from
its distribution that no other row of the batch can change. Temperature 0 takes the largest logit. A row whose logits
are not finite has no token; it is told apart here, so that its neighbours go on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from models.generation import Sampling
from models.noise import gumbel, key


@dataclass(frozen=True, slots=True)
class Draw:
    """How the next token of one row is drawn: its sampling, and the token's index in the answer."""

    sampling: Sampling
    index: int


@dataclass(frozen=True, slots=True)
class Drawn:
    """Tokens [rows], and whether each row's logits were finite."""

    tokens: Tensor
    finite: Tensor


def sample(logits: Tensor, draws: Sequence[Draw]) -> Drawn:
    """One token for each row of `logits` [rows, vocabulary]."""
    best = logits.max(dim=-1)
    finite = best.values.isfinite()
    random = [row for row, draw in enumerate(draws) if draw.sampling.temperature > 0]
    if not random:
        return Drawn(best.indices, finite)
    chosen = [draws[row] for row in random]
    if len(random) == len(draws):
        return Drawn(_draw(logits.float(), chosen), finite)
    rows = torch.tensor(random, device=logits.device)
    drawn = _draw(logits.index_select(0, rows).float(), chosen)
    return Drawn(best.indices.index_copy(0, rows, drawn), finite)


def _draw(logits: Tensor, draws: Sequence[Draw]) -> Tensor:
    device = logits.device
    keys = torch.tensor([key(draw.sampling.seed, draw.index) for draw in draws], dtype=torch.int32, device=device)
    heat = torch.tensor([[draw.sampling.temperature] for draw in draws], dtype=torch.float32, device=device)
    scores = logits / heat
    if not any(_filtered(draw.sampling) for draw in draws):
        tokens = torch.arange(scores.shape[1], dtype=torch.int32, device=device).unsqueeze(0)
        return (scores + gumbel(keys, tokens)).argmax(dim=-1)
    values, order = _candidates(scores, draws)
    values = _filter(values, draws)
    picked = (values + gumbel(keys, order.int())).argmax(dim=-1, keepdim=True)
    return order.gather(1, picked).squeeze(1)


def _filtered(sampling: Sampling) -> bool:
    return sampling.top_k > 0 or sampling.top_p < 1


def _candidates(scores: Tensor, draws: Sequence[Draw]) -> tuple[Tensor, Tensor]:
    """Scores in falling order, with their tokens; no more than some row can keep."""
    widest = max(draw.sampling.top_k if draw.sampling.top_k > 0 else scores.shape[1] for draw in draws)
    if widest < scores.shape[1]:
        values, order = scores.topk(widest, dim=-1)
        return values, order
    values, order = scores.sort(dim=-1, descending=True, stable=True)
    return values, order


def _filter(values: Tensor, draws: Sequence[Draw]) -> Tensor:
    """top_k first, then top_p of what it left; the most likely token always stays."""
    device, width = values.device, values.shape[1]
    most = torch.tensor([[draw.sampling.top_k if draw.sampling.top_k > 0 else width] for draw in draws], device=device)
    values = values.masked_fill(torch.arange(width, device=device) >= most, -torch.inf)
    if all(draw.sampling.top_p >= 1 for draw in draws):
        return values
    mass = torch.tensor([[draw.sampling.top_p] for draw in draws], dtype=torch.float32, device=device)
    likely = values.softmax(dim=-1)
    above = likely.cumsum(dim=-1) - likely  # what the more likely tokens have together
    outside = (above >= mass) & (mass < 1)
    outside[:, 0] = False
    return values.masked_fill(outside, -torch.inf)
