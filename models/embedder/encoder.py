"""The encoder itself: tokenizer, forward pass, pooling. Synchronous; one thread uses it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from transformers import AutoModel, AutoTokenizer
from transformers.utils import logging

from models.embedder.errors import EmbedderError
from models.embedder.recipe import Pooling, Recipe, read_recipe

Vectors = npt.NDArray[np.float32]
_LONGEST = 8192  # tokens; some tokenizers name no limit
_OFFSET_POSITIONS = frozenset({"camembert", "mpnet", "roberta", "xlm-roberta"})  # they count from pad_token_id + 1


class Encoder:
    def __init__(self, tokenizer: Any, model: Any, recipe: Recipe) -> None:
        self._tokenizer = tokenizer
        self._model = model.eval()
        self.recipe = recipe
        self.dimension = int(model.config.hidden_size)
        self.max_tokens = _max_tokens(tokenizer, model.config, recipe)

    def encode(self, texts: Sequence[str]) -> Vectors:
        """One vector of unit length per text; zero where the encoder has nothing to say."""
        with torch.inference_mode():
            tokens = self._tokenizer(
                [_well_formed(text) for text in texts],
                padding=True,
                truncation=True,
                max_length=self.max_tokens,
                return_tensors="pt",
            )
            hidden = self._model(**tokens).last_hidden_state.float()
            pooled = _pool(hidden, tokens["attention_mask"], self.recipe.pooling)
            # A zero vector can be seen and refused; NaN would poison an index silently.
            pooled = torch.nan_to_num(pooled, nan=0.0, posinf=0.0, neginf=0.0)
            vectors: Vectors = torch.nn.functional.normalize(pooled, dim=-1).numpy()
            return vectors


def load_encoder(name: str, checkpoint: str) -> Encoder:
    """`name` is what the user called it; `checkpoint` a folder or a Hugging Face name."""
    try:
        recipe = read_recipe(checkpoint)
        where = {"subfolder": recipe.folder} if recipe.folder else {}
        with _quiet():
            tokenizer = AutoTokenizer.from_pretrained(checkpoint, **where)
            model = AutoModel.from_pretrained(checkpoint, dtype=torch.float32, **where)
    except (OSError, ValueError, KeyError) as error:
        first = str(error).strip().splitlines()
        raise EmbedderError(
            f"embedder '{name}' cannot be loaded: {first[0] if first else type(error).__name__}"
        ) from None
    if tokenizer.pad_token is None:
        if tokenizer.eos_token is None:
            raise EmbedderError(f"embedder '{name}': its tokenizer has no padding token; choose another encoder")
        tokenizer.pad_token = tokenizer.eos_token
    tokenizer.padding_side = "right"
    return Encoder(tokenizer, model, recipe)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """No progress bar: a search in a terminal prints its hits and nothing else."""
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


def _pool(hidden: torch.Tensor, mask: torch.Tensor, pooling: Pooling) -> torch.Tensor:
    if pooling is Pooling.CLS:
        return hidden[:, 0]
    weights = mask.unsqueeze(-1).to(hidden.dtype)
    return (hidden * weights).sum(dim=1) / weights.sum(dim=1).clamp(min=1.0)


def _max_tokens(tokenizer: Any, config: Any, recipe: Recipe) -> int:
    positions = getattr(config, "max_position_embeddings", None) or _LONGEST
    if config.model_type in _OFFSET_POSITIONS:
        positions -= config.pad_token_id + 1
    return min(recipe.max_tokens or _LONGEST, tokenizer.model_max_length, positions, _LONGEST)


def _well_formed(text: str) -> str:
    """A lone surrogate would fail the whole batch in the tokenizer."""
    return text.encode("utf-8", "replace").decode("utf-8")
