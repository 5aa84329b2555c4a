"""From a name to an encoder."""

from __future__ import annotations

from pathlib import Path

from safetensors import SafetensorError

from models.embedder.bert import load_bert
from models.embedder.encoder import Encoder
from models.embedder.recipe import EmbedderError, read_recipe


def load_encoder(name: str, checkpoint: str, *, script: bool = False) -> Encoder:
    """`name` is the name in the setting; `checkpoint` a folder or a Hugging Face name.

    `script` is for `load_bert`; other encoders ignore it.
    """
    try:
        recipe = read_recipe(checkpoint)
        folder = Path(checkpoint)
        if folder.is_dir() and (encoder := load_bert(folder, recipe, script=script)):
            return encoder
        from models.embedder.auto import load_auto  # imports transformers, see bert.py

        return load_auto(name, checkpoint, recipe)
    except (OSError, ValueError, KeyError, SafetensorError) as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise EmbedderError(f"embedder '{name}' cannot be loaded: {lines[0]}") from None
