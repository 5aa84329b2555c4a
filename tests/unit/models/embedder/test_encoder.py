from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModel, AutoTokenizer

from models.embedder import EmbedderError
from models.embedder.encoder import Vectors
from models.embedder.loading import load_encoder
from models.embedder.recipe import Pooling
from tests.unit.models.embedder.tiny_encoder import DIMENSION, write_encoder, write_modules


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_encoder(tmp_path / "tiny")


def plain(folder: Path, text: str, pooling: str) -> Vectors:
    """What the encoder itself says of one text, without padding."""
    with torch.inference_mode():
        tokens = AutoTokenizer.from_pretrained(folder)(text, return_tensors="pt")
        hidden = AutoModel.from_pretrained(folder)(**tokens).last_hidden_state[0]
        pooled = hidden.mean(dim=0) if pooling == "mean" else hidden[0]
        vector: Vectors = torch.nn.functional.normalize(pooled, dim=-1).numpy()
        return vector


def test_encoder_without_a_recipe_gives_the_mean_of_tokens_whatever_the_padding(folder: Path) -> None:
    encoder = load_encoder("tiny", str(folder))
    vectors = encoder.encode(["red cat", "green dog blue cat red"])
    assert vectors.shape == (2, DIMENSION)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(vectors[0], plain(folder, "red cat", "mean"), atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)


@pytest.mark.parametrize("config", [{"pooling_mode_cls_token": True}, {"pooling_mode": "cls"}])
def test_pooling_of_the_checkpoint_is_honoured(folder: Path, config: dict[str, Any]) -> None:
    write_modules(folder, "Transformer", "Pooling", "Normalize", pooling={"word_embedding_dimension": 16, **config})
    encoder = load_encoder("tiny", str(folder))
    assert encoder.recipe.pooling is Pooling.CLS
    np.testing.assert_allclose(encoder.encode(["red cat"])[0], plain(folder, "red cat", "cls"), atol=1e-5)


@pytest.mark.parametrize(
    ("kinds", "pooling", "named"),
    [
        (("Transformer", "Pooling"), {"pooling_mode_max_tokens": True}, "max_tokens"),
        (("Transformer", "Pooling"), {"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": True}, "cls_token"),
        (("Transformer", "Pooling"), {"pooling_mode": "lasttoken"}, "lasttoken"),
        (("Transformer", "Pooling", "Dense"), {"pooling_mode": "mean"}, "Dense"),
    ],
)
def test_unknown_pooling_is_refused_with_its_name(
    folder: Path, kinds: tuple[str, ...], pooling: dict[str, Any], named: str
) -> None:
    write_modules(folder, *kinds, pooling=pooling)
    with pytest.raises(EmbedderError, match=named) as caught:
        load_encoder("tiny", str(folder))
    assert "\n" not in str(caught.value)


def test_long_text_is_cut_to_what_the_model_takes(folder: Path) -> None:
    encoder = load_encoder("tiny", str(folder))
    assert encoder.max_tokens == 32
    np.testing.assert_allclose(encoder.encode(["red " * 500])[0], encoder.encode(["red " * 30])[0], atol=1e-5)


def test_max_length_of_the_checkpoint_is_honoured(folder: Path) -> None:
    write_modules(
        folder, "Transformer", "Pooling", pooling={"pooling_mode": "mean"}, sentence_bert_config={"max_seq_length": 8}
    )
    assert load_encoder("tiny", str(folder)).max_tokens == 8


def test_prompts_of_the_checkpoint_are_read(folder: Path) -> None:
    prompts = {"query": "query: ", "passage": "text: "}
    write_modules(
        folder,
        "Transformer",
        "Pooling",
        pooling={"pooling_mode": "mean"},
        config_sentence_transformers={"prompts": prompts},
    )
    recipe = load_encoder("tiny", str(folder)).recipe
    assert (recipe.query_prompt, recipe.text_prompt) == ("query: ", "text: ")


def test_empty_and_ill_formed_texts_are_encoded_and_hurt_no_neighbour(folder: Path) -> None:
    encoder = load_encoder("tiny", str(folder))
    vectors = encoder.encode(["", "red \ud800 cat", "blue dog", "\0"])
    assert np.isfinite(vectors).all()
    np.testing.assert_allclose(vectors[2], encoder.encode(["blue dog"])[0], atol=1e-5)


def test_broken_weights_give_zero_and_never_nan(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    weights["embeddings.word_embeddings.weight"].fill_(float("nan"))
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    assert (load_encoder("tiny", str(folder)).encode(["red cat"]) == 0).all()


def test_folder_without_a_model_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(EmbedderError, match=r"embedder 'empty' cannot be loaded") as caught:
        load_encoder("empty", str(tmp_path))
    assert "\n" not in str(caught.value)
