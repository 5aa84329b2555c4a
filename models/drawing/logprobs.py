"""Log probabilities of the tokens of many rows, and of the likeliest ones of each.

They are the model's own: of its logits, before temperature, penalties and filters. On a CPU, a row's are the same alone
and among others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

from models.drawing.likeliest import likeliest
from models.machine.torchscript import compiled


class Logprobs(NamedTuple):
    """Of one token a row: its `own` [rows], and the `best` tokens of the row with theirs [rows, most], in order.

    `ranks` [rows] begin with 1, the likeliest token; empty if they were not asked for.
    """

    own: Tensor
    best_tokens: Tensor
    best: Tensor
    ranks: Tensor

    def pairs(self) -> list[tuple[tuple[int, float], ...]]:
        """The best tokens of each row with their log probabilities."""
        rows = zip(self.best_tokens.tolist(), self.best.tolist(), strict=True)
        return [tuple(zip(tokens, best, strict=True)) for tokens, best in rows]


def logprobs_of(
    logits: Tensor, rows: Sequence[int], tokens: Sequence[int], most: int, *, ranked: bool = False
) -> Logprobs:
    """Of `rows` of `logits` [all rows, vocabulary], each with one of `tokens`."""
    asked = torch.tensor([rows, tokens], device=logits.device)
    return Logprobs(*_scorer(logits.device.type)(logits, asked, min(most, logits.shape[1]), ranked))


@cache
def _scorer(device: str) -> Callable[[Tensor, Tensor, int, bool], tuple[Tensor, Tensor, Tensor, Tensor]]:
    """As a script on a CPU, which releases the GIL once (models/machine/torchscript.py)."""
    return compiled(score) if device == "cpu" else score


def score(logits: Tensor, asked: Tensor, most: int, ranked: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The fields of `Logprobs`; `asked` [2, rows] are rows and tokens. TorchScript compiles it."""
    own: list[Tensor] = []
    tokens: list[Tensor] = []
    best: list[Tensor] = []
    ranks: list[Tensor] = []
    # Eight rows of 262,144 logits are 8 MiB. Much more would be taken from Linux anew in each step. A GPU has no such
    # trouble, and starts ten operations for each part.
    for part in asked.split(256 if logits.is_cuda else 8, dim=1):
        scores = logits.index_select(0, part[0]).float()
        logprobs = scores.log_softmax(dim=-1)
        one = part[1].unsqueeze(1)
        own.append(logprobs.gather(1, one).squeeze(1))
        if most > 0:
            order = likeliest(scores, most)[1]
            tokens.append(order)
            best.append(logprobs.gather(1, order))
        if ranked:
            ranks.append((scores > scores.gather(1, one)).sum(dim=-1) + 1)
    rows = asked.size(1)
    return (
        torch.cat(own),
        torch.cat(tokens) if most > 0 else asked.new_empty(rows, 0),
        torch.cat(best) if most > 0 else own[0].new_empty(rows, 0),
        torch.cat(ranks) if ranked else asked.new_empty(0),
    )
