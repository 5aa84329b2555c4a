"""Does the engine compute what the model computes?

The config does not tell everything, so before it serves anybody the engine answers a short prompt in chunks and single
tokens, and its logits are compared with those of the model's own attention. A model that fails is refused: to serve it
would be silently wrong.
"""

from __future__ import annotations

import itertools

import torch
from torch import Tensor

from models.checkpoints import CheckpointError
from models.engine.attention import NAME
from models.engine.pages import PagePool
from models.engine.row import Row, Slice, pages_for
from models.engine.runner import Runner
from models.engine.stream import TokenStream
from models.generation import Job

LENGTH = 37
CUTS = (0, 20, 35, 36, 37)  # a chunk, a chunk that sees a cache, two single tokens
TOLERANCE = {torch.float32: 2e-3}
TOLERANCE_HALF = 0.1


@torch.inference_mode()
def probe(runner: Runner, pool: PagePool) -> None:
    """Raise `CheckpointError` where the engine's logits are not the model's."""
    model = runner.model
    ids = [(7919 * n * n + 31 * n + 11) % model.config.vocab_size for n in range(LENGTH)]
    model.set_attn_implementation("eager")
    try:
        own = model(torch.tensor([ids], device=model.device), use_cache=False).logits[0].float()
    finally:
        model.set_attn_implementation(NAME)
    ours = _computed(runner, pool, ids)
    theirs = own[[cut - 1 for cut in CUTS[1:]]]
    error = float((ours - theirs).norm() / theirs.norm().clamp_min(1e-6))
    if not error <= TOLERANCE.get(model.dtype, TOLERANCE_HALF):
        raise CheckpointError(
            f"model of type {model.config.model_type}: the engine's logits differ from its own by {error:.1%}; "
            "its attention is of a kind that the engine does not implement"
        )


def _computed(runner: Runner, pool: PagePool, ids: list[int]) -> Tensor:
    row = Row(Job("probe", tuple(ids), 1), TokenStream(lambda *_: None), 0, 0.0, LENGTH + 1)
    row.pages = pool.take(pages_for(LENGTH, pool.size)) or []
    found = []
    try:
        for start, end in itertools.pairwise(CUTS):
            row.tokens = ids[:end]
            found.append(runner.forward(runner.pack([Slice(row, start, end - start)]))[-1].float())
    finally:
        runner.scrub(row.let_go(pool, forget=True))
    return torch.stack(found)
