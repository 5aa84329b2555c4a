"""The encoder: tokens in, one unit vector per text out. Synchronous; used by one thread."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import torch

from models.embedder.recipe import Pooling, VectorRecipe
from models.machine.torchscript import compiled

Vectors = npt.NDArray[np.float32]
Forward = Callable[[list[str]], tuple[torch.Tensor, torch.Tensor]]
"""Texts to the vectors of their tokens, and the mask of the padding."""
LONGEST = 8192  # tokens; some tokenizers have no limit


class Encoder:
    def __init__(
        self,
        forward: Forward,
        recipe: VectorRecipe,
        dimension: int,
        max_tokens: int,
        count: Callable[[list[str]], int],
        *,
        script: bool = False,
    ) -> None:
        """`count`: the number of tokens of texts. As a `script`, pooling waits for the GIL once."""
        self._forward = forward
        self._pool = compiled(unit_vectors) if script else unit_vectors
        self._count = count
        self.recipe = recipe
        self.dimension = dimension
        self.max_tokens = max_tokens

    def encode(self, texts: Sequence[str]) -> Vectors:
        """Zero if the encoder returns nothing finite."""
        with torch.inference_mode():
            hidden, mask = self._forward([_well_formed(text) for text in texts])
            vectors: Vectors = self._pool(hidden, mask, self.recipe.pooling is Pooling.CLS).numpy()
            return vectors

    def count_tokens(self, texts: Sequence[str]) -> int:
        return self._count([_well_formed(text) for text in texts])


def unit_vectors(hidden: torch.Tensor, mask: torch.Tensor, first: bool) -> torch.Tensor:
    """One unit vector per text [texts, width], of its `first` token or the mean of all, from `hidden`
    [texts, tokens, width].
    """
    hidden = hidden.float()
    if first:
        pooled = hidden[:, 0]
    else:
        weights = mask.unsqueeze(-1).to(hidden.dtype)
        pooled = (hidden * weights).sum(dim=1) / weights.sum(dim=1).clamp(min=1.0)
    # A zero vector can be detected and rejected; NaN would silently poison an index.
    return torch.nn.functional.normalize(torch.nan_to_num(pooled, nan=0.0, posinf=0.0, neginf=0.0), dim=-1)


def _well_formed(text: str) -> str:
    """A lone surrogate would make the tokenizer fail the whole batch."""
    return text.encode("utf-8", "replace").decode("utf-8")
