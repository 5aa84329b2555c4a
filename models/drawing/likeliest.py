"""The likeliest tokens of each row, in order. Of equal scores, which half precision has in plenty, the lower token is
the likelier one: what a row keeps must not depend on how many its neighbours keep.

TorchScript compiles all of it.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad


def likeliest(scores: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` largest of `scores` [rows, vocabulary], and their tokens: both [rows, count].

    Few of many are in those blocks of tokens that have the `count` largest maxima.
    """
    width, size = scores.size(1), 512
    if count == width:
        return scores.sort(dim=-1, descending=True, stable=True)
    if 4 * count * size > width:
        return _largest(scores, count)
    whole = scores if width % size == 0 else pad(scores, [0, size - width % size], value=-torch.inf)
    blocks = whole.view(scores.size(0), -1, size)
    chosen = _largest(blocks.amax(dim=-1), count)[1].sort(dim=-1)[0]
    candidates = blocks.gather(1, chosen.unsqueeze(-1).expand(-1, -1, size)).flatten(1)
    values, at = _largest(candidates, count)
    return values, chosen.gather(1, at // size) * size + at % size


def _largest(scores: Tensor, count: int) -> tuple[Tensor, Tensor]:
    bits = in_order(scores).long()
    last = scores.size(1) - 1
    places = torch.arange(last, -1, -1, device=scores.device)
    found = (bits * (1 << 32) + places).topk(count, dim=-1)[0]
    order = last - (found & 0xFFFFFFFF)
    return scores.gather(1, order), order


def in_order(scores: Tensor) -> Tensor:
    """Integers of 32 bits in the order of the scores."""
    bits = torch.view_copy(scores + 0.0, dtype=torch.int32)  # + 0.0: there is a zero with a sign, too
    return torch.where(bits < 0, bits ^ 0x7FFFFFFF, bits)
