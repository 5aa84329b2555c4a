"""An encoder of a few kilobytes, written as a checkpoint folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "query", "text", "red", "green", "blue", "cat", "dog"]
DIMENSION = 16


def write_encoder(folder: Path, *, positions: int = 32) -> Path:
    torch.manual_seed(7)
    tokenizer = Tokenizer(WordLevel({word: index for index, word in enumerate(WORDS)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.post_processor = TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]"
    ).save_pretrained(folder)
    BertModel(
        BertConfig(
            vocab_size=len(WORDS),
            hidden_size=DIMENSION,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=16,
            max_position_embeddings=positions,
        )
    ).save_pretrained(folder)
    return folder


def write_modules(folder: Path, *kinds: str, pooling: dict[str, Any] | None = None, **files: Any) -> Path:
    """Make it a sentence-transformers checkpoint; `files` are JSON files at its top."""
    places = {"Pooling": "1_Pooling"}
    modules = [{"type": f"sentence_transformers.models.{kind}", "path": places.get(kind, "")} for kind in kinds]
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling/config.json").write_text(json.dumps(pooling or {}))
    (folder / "modules.json").write_text(json.dumps(modules))
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    return folder
