"""Which attention the layers of a model compute: the engine's, or their own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from models.llama import LlamaDecoder


def use_paged_attention(model: Any) -> None:
    """Let `model` attend through the `context` of each call."""
    if not isinstance(model, LlamaDecoder):  # which does so whenever it gets one
        from models.compute.transformers_attention import NAME

        model.set_attn_implementation(NAME)


@contextmanager
def own_attention(model: Any) -> Iterator[None]:
    """Within the block, `model` attends by itself, and its calls have no `context`."""
    if isinstance(model, LlamaDecoder):
        yield
        return
    model.set_attn_implementation("eager")
    try:
        yield
    finally:
        use_paged_attention(model)
