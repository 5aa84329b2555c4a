"""Any encoder that transformers supports."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from transformers import AutoModel, AutoTokenizer
from transformers.utils import logging

from models.embedder.encoder import LONGEST, Encoder
from models.embedder.recipe import EmbedderError, VectorRecipe

_OFFSET_POSITIONS = frozenset(
    {"camembert", "mpnet", "roberta", "xlm-roberta"}
)  # their positions start at pad_token_id + 1


def load_auto(name: str, checkpoint: str, recipe: VectorRecipe) -> Encoder:
    where = {"subfolder": recipe.folder} if recipe.folder else {}
    with _quiet():
        tokenizer = AutoTokenizer.from_pretrained(checkpoint, **where)
        model = AutoModel.from_pretrained(checkpoint, dtype=torch.float32, use_safetensors=True, **where).eval()
    if tokenizer.pad_token is None:
        if tokenizer.eos_token is None:
            raise EmbedderError(f"embedder '{name}': its tokenizer has no padding token; choose another encoder")
        tokenizer.pad_token = tokenizer.eos_token
    tokenizer.padding_side = "right"
    max_tokens = _max_tokens(tokenizer, model.config, recipe)

    def forward(texts: list[str]) -> tuple[torch.Tensor, torch.Tensor]:
        tokens = tokenizer(texts, padding=True, truncation=True, max_length=max_tokens, return_tensors="pt")
        return model(**tokens).last_hidden_state, tokens["attention_mask"]

    def count(texts: list[str]) -> int:
        return sum(map(len, tokenizer(texts, truncation=True, max_length=max_tokens)["input_ids"]))

    return Encoder(forward, recipe, int(model.config.hidden_size), max_tokens, count)


def _max_tokens(tokenizer: Any, config: Any, recipe: VectorRecipe) -> int:
    positions = getattr(config, "max_position_embeddings", None) or LONGEST
    if config.model_type in _OFFSET_POSITIONS:
        positions -= config.pad_token_id + 1
    return min(recipe.max_tokens or LONGEST, tokenizer.model_max_length, positions, LONGEST)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """No progress bar: a search in a terminal prints only its hits."""
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()
