"""Check that the engine computes what the model computes.

The config does not show everything. Before it serves requests, the engine therefore runs a short prompt in chunks and
single tokens and compares its logits with those of the model's own attention. A model that fails is rejected, because
its answers would be silently wrong. The cache is one of the model's own data type: beside products of integers, the
rounding of another would hide an error.
"""

from __future__ import annotations

import itertools
from typing import Any

import torch
from torch import Tensor

from models.compute.attention import Context
from models.compute.cache import PAGE_SIZE, KVCache
from models.compute.model_attention import own_attention
from models.compute.pages import pages_for
from models.engine.runner import Runner
from models.engine.sequence import ScheduledChunk, SequenceState
from models.files.errors import CheckpointError, first_line
from models.interface.generation import Job
from models.interface.token_stream import TokenStream
from models.weights.replacing import has_integer_layers

LENGTH = 37
TAIL = (17, 2, 1)  # the last pieces, from the end: a chunk that sees a cache, then two single tokens
TOLERANCE = {torch.float32: 2e-3}
TOLERANCE_HALF = 0.1
TOLERANCE_INTEGERS = 0.3
"""A last bit decides how an activation is rounded, so two ways to attend have errors of their own."""


@torch.inference_mode()
def probe(runner: Runner, context_length: int) -> None:
    """Raise `CheckpointError` if the engine's logits differ from the model's."""
    model = runner.model
    length = min(LENGTH, context_length)
    ids = [(7919 * n * n + 31 * n + 11) % model.config.vocab_size for n in range(length)]
    cuts = [0, *(length - left for left in TAIL if left < length), length]
    kind = f"model of type {model.config.model_type}"
    try:
        own = _own(model, ids)
        ours, windows = _computed(runner, ids, cuts)
        theirs = own[[cut - 1 for cut in cuts[1:]]]
        off = float((ours - theirs).norm() / theirs.norm().clamp_min(1e-6))
    except Exception as error:
        raise CheckpointError(f"{kind}: the engine cannot compute it: {first_line(error)}") from error
    if not off <= (TOLERANCE_INTEGERS if has_integer_layers(model) else TOLERANCE.get(model.dtype, TOLERANCE_HALF)):
        raise CheckpointError(
            f"{kind}: the engine's logits differ from its own by {off:.1%}; "
            "its attention is of a kind that the engine does not implement"
        )
    if _has_window(model.config, context_length) and not windows:
        # A model may apply the window by a mask or a cache of its own, Llama only in `generate`; longer prompts are
        # untested.
        window = model.config.sliding_window
        raise CheckpointError(
            f"{kind}: its attention does not tell the engine of its sliding window of {window} tokens; "
            f"it can be served with a context_length of {window} or less"
        )


def _own(model: Any, ids: list[int]) -> Tensor:
    """The logits of the model's own attention."""
    with own_attention(model):
        logits: Tensor = model(torch.tensor([ids], device=model.device), use_cache=False).logits[0].float()
    return logits


def _has_window(config: Any, context_length: int) -> bool:
    """Whether some layers must not see everything before a token."""
    window = getattr(config, "sliding_window", None)
    kinds = getattr(config, "layer_types", None)
    return isinstance(window, int) and 0 < window < context_length and (not kinds or "sliding_attention" in kinds)


def _computed(runner: Runner, ids: list[int], cuts: list[int]) -> tuple[Tensor, bool]:
    """The engine's logits of the last token of each piece, and whether its layers requested windows."""
    model, pages = runner.model, pages_for(len(ids), PAGE_SIZE)
    cache = KVCache(model.config, pages + 1, model.device, model.dtype)
    sequence = SequenceState(Job("probe", tuple(ids), 1), TokenStream(lambda *_: None), 0, 0.0, len(ids) + 1)
    sequence.pages = list(range(1, pages + 1))
    logits, windows = [], False
    for start, end in itertools.pairwise(cuts):
        sequence.tokens = ids[:end]
        context = Context(runner.pack([ScheduledChunk(sequence, start, end - start)]), cache)
        logits.append(runner.compute(context)[-1].float())
        windows = windows or any(runner.windows(context))
    return torch.stack(logits), windows
