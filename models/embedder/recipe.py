"""How token vectors become a text's vector, according to the checkpoint.

A sentence-transformers checkpoint lists its modules (`modules.json`: encoder, pooling, normalization) and may define
prompts for queries and documents. An encoder without that list gets mean pooling. Anything unknown is rejected: with a
wrong pooling, vectors look fine and searches find nothing.
"""

from __future__ import annotations

import enum
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_KNOWN = ("Transformer", "Pooling", "Normalize")


class EmbedderError(Exception):
    """The embedder cannot be used; the message is one line with the cause and the remedy."""


class Pooling(enum.StrEnum):
    MEAN = "mean"
    CLS = "cls"


@dataclass(frozen=True, slots=True)
class VectorRecipe:
    """`folder` is the encoder's folder in the checkpoint; the prompts are prepended to every text."""

    pooling: Pooling = Pooling.MEAN
    max_tokens: int | None = None
    folder: str = ""
    query_prompt: str = ""
    text_prompt: str = ""


def read_recipe(checkpoint: str) -> VectorRecipe:
    modules = _read(checkpoint, "modules.json") or []
    folders = {module["type"].rpartition(".")[2]: module.get("path", "") for module in modules}
    unknown = [kind for kind in folders if kind not in _KNOWN]
    if unknown:
        raise EmbedderError(
            f"embedder '{checkpoint}': its module {unknown[0]} is not implemented; choose one with mean or cls pooling"
        )
    folder = folders.get("Transformer", "")
    prompts = (_read(checkpoint, "config_sentence_transformers.json") or {}).get("prompts") or {}
    return VectorRecipe(
        pooling=_pooling(checkpoint, folders["Pooling"]) if "Pooling" in folders else Pooling.MEAN,
        max_tokens=(_read(checkpoint, _join(folder, "sentence_bert_config.json")) or {}).get("max_seq_length"),
        folder=folder,
        query_prompt=prompts.get("query", ""),
        text_prompt=prompts.get("document", prompts.get("passage", "")),
    )


def _pooling(checkpoint: str, folder: str) -> Pooling:
    config = _read(checkpoint, _join(folder, "config.json")) or {}
    # Older checkpoints have one flag per mode, newer ones a name.
    modes = {name.removeprefix("pooling_mode_") for name, on in config.items() if on is True and "pooling_mode" in name}
    if isinstance(config.get("pooling_mode"), str):
        modes = {config["pooling_mode"]}
    if modes in ({"cls_token"}, {"cls"}):
        return Pooling.CLS
    if modes in ({"mean_tokens"}, {"mean"}):
        return Pooling.MEAN
    named = " + ".join(sorted(modes)) or "none"
    raise EmbedderError(f"embedder '{checkpoint}': pooling {named} is not implemented; choose one with mean or cls")


def _join(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name


def _read(checkpoint: str, name: str) -> Any:
    """A JSON file of the checkpoint; None if it does not exist."""
    path = _find(checkpoint, name)
    if path is None:
        return None
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise EmbedderError(f"embedder '{checkpoint}': {name} is not JSON ({error})") from None


def _find(checkpoint: str, name: str) -> Path | None:
    if (folder := Path(checkpoint)).is_dir():
        return folder / name if (folder / name).is_file() else None
    from transformers.utils import cached_file  # only for what is not on this machine

    found = cached_file(checkpoint, name, _raise_exceptions_for_missing_entries=False)
    return Path(found) if found else None
