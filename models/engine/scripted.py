"""A whole forward as one TorchScript function, for CPUs.

The event loop and the engine are threads of one interpreter. Each operation of an eager forward gives the interpreter
away and has to get it back, which takes up to a switch interval while the loop is busy: a small model's 150 operations
made a step of 2.3 ms one of 24 ms. A script runs all of them without the interpreter: 5 ms beside the same busy thread,
and some 15 % less time alone. It computes exactly what `lean.Layer` and `attention.attend` compute.

TorchScript is deprecated in favour of compilers that need one on the machine. Where it does not compile any more, the
eager forward remains.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import embedding, linear, silu

from models.engine.attention import dense

log = logging.getLogger(__name__)


# What torch computes of a norm on a CPU in some ten operations, in half of them.
def norm(hidden: Tensor, weight: Tensor, small: Tensor, eps: float) -> Tensor:
    if hidden.dtype != torch.float32:
        return torch.rms_norm(hidden, [hidden.size(-1)], weight, eps)
    length = torch.linalg.vector_norm(hidden, 2.0, [-1], True)
    scale = torch.addcmul(small, length, length, value=1.0 / float(hidden.size(-1))).rsqrt_()
    return (hidden * scale).mul_(weight)


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    keys: Tensor,
    values: Tensor,
    slots: Tensor,
    shapes: list[list[int]],
    pages: list[Tensor | None],
    masks: list[Tensor | None],
    scratch: list[Tensor],
    scale: float,
) -> Tensor:
    heads, size = keys.size(2), keys.size(3)
    keys.view(-1, heads, size).index_copy_(0, slots, key)
    values.view(-1, heads, size).index_copy_(0, slots, value)
    parts: list[Tensor] = []
    for at, shape in enumerate(shapes):
        first, rows, width = shape[0], shape[1], shape[2]
        end = first + rows * width
        page = pages[at]
        if page is None:
            seen_key = key[first:end].transpose(0, 1).unsqueeze(0)
            seen_value = value[first:end].transpose(0, 1).unsqueeze(0)
        else:
            count = page.size(0)
            torch.index_select(keys, 0, page, out=scratch[0][:count])
            torch.index_select(values, 0, page, out=scratch[1][:count])
            seen_key = scratch[0][:count].view(rows, -1, heads, size).transpose(1, 2)
            seen_value = scratch[1][:count].view(rows, -1, heads, size).transpose(1, 2)
        parts.append(dense(query[first:end], seen_key, seen_value, masks[at], width, scale))
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def forward(
    tokens: Tensor,
    slots: Tensor,
    last: Tensor,
    places: Tensor,
    cosines: Tensor,
    sines: Tensor,
    embeddings: Tensor,
    layers: list[list[Tensor]],
    biases: list[list[Tensor | None]],
    keys: list[Tensor],
    values: list[Tensor],
    shapes: list[list[int]],
    pages: list[Tensor | None],
    masks: list[list[Tensor | None]],
    kinds: list[int],
    scratch: list[Tensor],
    heads: list[int],
    scale: float,
    small: Tensor,
    eps: float,
    final: Tensor,
    head: Tensor,
    head_bias: Tensor | None,
) -> Tensor:
    """The logits of the tokens `last`.

    `layers[i]` are the weights of both norms, of what comes in and out of attention and of the MLP, then of the norms
    of queries and keys where there are some; `heads` the number of query heads, of query and key heads, and their size.
    A token's angles are at `places` of `cosines` and `sines` [n, 1, size]; the halves of a head change places, and the
    sign of one of them is in `sines`. `masks[kinds[i]]` are layer i's.
    """
    hidden = embedding(tokens, embeddings)
    cos, sin = cosines.index_select(0, places), sines.index_select(0, places)
    queries, both, size = heads[0], heads[1], heads[2]
    count = hidden.size(0)
    for number, weights in enumerate(layers):
        bias = biases[number]
        found = linear(norm(hidden, weights[0], small, eps), weights[2], bias[0]).view(count, -1, size)
        turned = found[:, :both]
        if len(weights) > 6:
            asked, known = found[:, :queries], found[:, queries:both]
            turned = torch.cat([norm(asked, weights[6], small, eps), norm(known, weights[7], small, eps)], dim=1)
        turned = torch.addcmul(turned * cos, turned.roll(size // 2, -1), sin)
        seen = attend(
            turned[:, :queries], turned[:, queries:], found[:, both:], keys[number], values[number],
            slots, shapes, pages, masks[kinds[number]], scratch, scale,
        )  # fmt: skip
        hidden = hidden + linear(seen.reshape(count, -1), weights[3], bias[1])
        gate, up = linear(norm(hidden, weights[1], small, eps), weights[4], bias[2]).chunk(2, -1)
        hidden = hidden + linear(silu(gate) * up, weights[5], bias[3])
    return linear(norm(hidden.index_select(0, last), final, small, eps), head, head_bias)


def compiled() -> Callable[..., Tensor] | None:
    """The script, or None where this torch does not make one."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that it is deprecated
            script: Callable[..., Tensor] = torch.jit.script(forward)
            return script
    except Exception as error:  # noqa: BLE001  whatever it is, the eager forward does the same
        log.info("the forward stays eager: %s", (str(error).splitlines() or [type(error).__name__])[0])
        return None
