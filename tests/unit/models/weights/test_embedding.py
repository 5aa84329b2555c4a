"""The embedding of a tied vocabulary is read from its file, row by row, and computes what a copy of it does."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch

from models.checkpoints.loading import Checkpoint, load_checkpoint
from models.llama.decoder import Embedding
from models.weights import Kind, Products, replace_layers
from models.weights.embedding import leave_embedding_in_file
from models.weights.int8 import why_not
from tests.unit.models import tiny

IDS = torch.tensor([[7, 50, 11, 300, 42, 9, 77, 120]])
FAMILIES = ["llama", "gemma3_text"]
LARGE = 1 << 16
PAGE_KIB = 4

pytestmark = pytest.mark.skipif(why_not(torch.device("cpu")) is not None, reason="this CPU has no such products")


def saved(folder: Path, family: str, seed: int = 0, vocabulary: int = 0) -> Path:
    model = tiny.model(family, seed, tie_word_embeddings=True).to(torch.bfloat16)
    if vocabulary:
        model.resize_token_embeddings(vocabulary, mean_resizing=False)
    model.save_pretrained(folder)
    tiny.tokenizer().save_pretrained(folder)
    return folder


def loaded(folder: Path) -> Checkpoint:
    return load_checkpoint(str(folder), device="cpu", quantize="int8", by_transformers=False)


@torch.inference_mode()
def rows(model: Any) -> torch.Tensor:
    embedding = model.get_input_embeddings()
    widened: torch.Tensor = embedding.widened(IDS, model.dtype) if isinstance(embedding, Embedding) else embedding(IDS)
    return widened


def kib_in_memory(file: Path) -> list[int]:
    """Of each mapping of `file` in this process."""
    maps = Path("/proc/self/smaps").read_text(encoding="utf-8").split(f" {file}\n")[1:]
    return [int(found[1]) for part in maps if (found := re.search(r"^Rss: +(\d+) kB", part, re.MULTILINE))]


@pytest.mark.parametrize("family", FAMILIES)
def test_its_rows_are_those_of_the_weights_in_memory(family: str, tmp_path: Path) -> None:
    folder = saved(tmp_path, family)
    held = loaded(folder).model
    copy = tiny.model(family, tie_word_embeddings=True).to(torch.bfloat16)
    replace_layers(copy, Products(Kind.INT8, Kind.INT8), torch.float32)
    assert torch.equal(rows(held).flatten(), rows(copy).flatten())


@pytest.mark.parametrize("family", FAMILIES)
def test_only_rows_that_were_asked_for_are_in_memory(family: str, tmp_path: Path) -> None:
    folder = saved(tmp_path, family, vocabulary=LARGE)
    made = loaded(folder)
    rows(made.model)
    (file,) = folder.glob("*.safetensors")
    (kib,) = kib_in_memory(file)
    embedding = made.model.get_input_embeddings()
    assert embedding.weight.dtype is torch.bfloat16
    assert made.model.get_output_embeddings().is_copy
    assert PAGE_KIB <= kib < embedding.weight.nbytes / 1024 / 4


def test_it_stays_in_memory_if_its_file_has_another_one(tmp_path: Path) -> None:
    model = tiny.model("gemma3_text", tie_word_embeddings=True).to(torch.bfloat16)
    saved(tmp_path, "gemma3_text", seed=5)
    replace_layers(model, Products(Kind.INT8, Kind.INT8), torch.float32)
    before = rows(model)
    assert not leave_embedding_in_file(model, tmp_path)
    assert torch.equal(rows(model), before)
    (file,) = tmp_path.glob("*.safetensors")
    assert str(file) not in Path("/proc/self/maps").read_text(encoding="utf-8")


def test_an_embedding_that_makes_no_logits_stays_in_memory(tmp_path: Path) -> None:
    model = tiny.model("llama", tie_word_embeddings=False).to(torch.bfloat16)
    model.save_pretrained(tmp_path)
    replace_layers(model, Products(Kind.INT8, Kind.INT8), torch.float32)
    assert not leave_embedding_in_file(model, tmp_path)
