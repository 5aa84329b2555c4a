"""What top_k and top_p keep of a whole vocabulary, found without sorting it, which takes a GPU longer than a step of a
large model.

A token is kept if all likelier ones together weigh less than a limit. The lowest score of which that holds is found
bit by bit, by a Triton kernel (lowest_score.py).
"""

from __future__ import annotations

import logging
import math
from functools import cache

import torch
from torch import Tensor

from models.drawing.likeliest import in_order
from models.interface.unexpected import type_and_line

log = logging.getLogger(__name__)


@cache
def can_do_without_sorting(device: torch.device) -> bool:
    """Tried once; if not, one line of the log says why."""
    try:
        scores = torch.arange(64.0, device=device).view(2, 32) % 11
        likely = scores.double().softmax(dim=-1)
        mass = torch.full((2, 1), 0.8, device=device, dtype=torch.float64)
        ordered, tokens = likely.sort(dim=-1, descending=True, stable=True)
        expected = torch.zeros_like(likely, dtype=torch.bool)
        expected.scatter_(1, tokens, ordered.cumsum(dim=-1) - ordered < mass)
        reason = None if torch.equal(kept(scores, likely, mass), expected) else "its results are others than torch's"
    except Exception as error:  # noqa: BLE001 - of a compiler, a driver, a library: whatever it is, there is another way
        reason = type_and_line(error)
    if reason is not None:
        log.warning("top_p sorts the vocabulary, which costs time: %s", reason)
    return reason is None


def filter_all(scores: Tensor, most: Tensor, top_p: Tensor, min_p: Tensor) -> Tensor:
    """What `filter_scores` keeps, in the order of the vocabulary; `most`, `top_p` and `min_p` are [rows, 1]."""
    width = scores.size(1)
    values = scores.masked_fill(~kept(scores, torch.ones_like(scores, dtype=torch.float64), most.double()), -math.inf)
    likely = values.double().softmax(dim=-1)
    inside = (likely >= likely.amax(dim=-1, keepdim=True) * min_p) & (
        kept(scores, likely, top_p.double()) | (top_p >= 1)
    )
    first = torch.arange(width, device=scores.device) == scores.argmax(dim=-1, keepdim=True)
    return values.masked_fill(~(inside | first), -math.inf)


def kept(scores: Tensor, weights: Tensor, limits: Tensor) -> Tensor:
    """Where the `weights` of all likelier tokens are below a limit; both float64, `limits` [rows, 1]. Of equal scores
    the lower token is the likelier.
    """
    from models.drawing.lowest_score import lowest_scores  # Triton is only there where a GPU may be

    order = in_order(scores)
    lowest, above = lowest_scores(order, weights, limits)
    same = weights * (order == lowest)
    return (order > lowest) | ((order == lowest) & (above + same.cumsum(dim=-1) - same < limits))
