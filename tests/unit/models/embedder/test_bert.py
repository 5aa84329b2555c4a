from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from models.embedder.auto import load_auto
from models.embedder.bert import load_bert
from models.embedder.loading import find_minilm
from models.embedder.recipe import read_recipe
from tests.unit.models.embedder.tiny_encoder import write_encoder

TEXTS = ["red cat", "", "green dog blue " * 300, "What is a cat? Übung macht den Meister, 東京 😀", "a"]


@pytest.mark.parametrize("script", [False, True])
@pytest.mark.parametrize("which", ["tiny", "minilm"])
def test_vectors_are_those_of_transformers(which: str, script: bool, tmp_path: Path) -> None:
    folder = find_minilm() if which == "minilm" else write_encoder(tmp_path)
    recipe = read_recipe(str(folder))
    own, theirs = load_bert(folder, recipe, script=script), load_auto(which, str(folder), recipe)
    assert own is not None
    assert (own.dimension, own.max_tokens) == (theirs.dimension, theirs.max_tokens)
    for texts in (TEXTS, TEXTS[::-1], TEXTS[:2]):  # a script is optimized at its second run
        np.testing.assert_allclose(own.encode(texts), theirs.encode(texts), atol=2e-5)


@pytest.mark.parametrize(
    "change",
    [
        {"model_type": "roberta"},
        {"hidden_act": "relu"},
        {"position_embedding_type": "relative_key"},
        {"is_decoder": True},
    ],
)
def test_anything_but_a_plain_bert_is_left_to_transformers(tmp_path: Path, change: dict[str, object]) -> None:
    folder = write_encoder(tmp_path)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | change))
    assert load_bert(folder, read_recipe(str(folder))) is None


def test_packaged_encoder_needs_no_transformers() -> None:
    code = """
import asyncio, sys
from models.embedder import load_embedder
embedder = load_embedder("minilm")
asyncio.run(embedder.embed(["hello"]))
embedder.close()
sys.exit("transformers" in sys.modules)
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
