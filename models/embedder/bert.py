"""BERT without transformers, for a folder that contains one: MiniLM and most small encoders.

Importing transformers' model classes takes several times longer than loading and running such an encoder, and `parley
search` would pay for it at every call.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer
from torch.nn.functional import embedding, gelu, layer_norm, linear, scaled_dot_product_attention

from models.embedder.encoder import Encoder
from models.embedder.recipe import Recipe

Weights = dict[str, torch.Tensor]


def load_bert(folder: Path, recipe: Recipe) -> Encoder | None:
    """None if the folder contains another kind of model."""
    folder = folder / recipe.folder
    files = [folder / name for name in ("config.json", "model.safetensors", "tokenizer.json")]
    if not all(path.is_file() for path in files):
        return None
    config = json.loads(files[0].read_text(encoding="utf-8"))
    if not _is_plain(config):
        return None
    weights = {name.removeprefix("bert."): weight.float() for name, weight in load_file(files[1]).items()}
    if "embeddings.LayerNorm.weight" not in weights:
        return None
    bert = Bert(weights, config["num_hidden_layers"], config["num_attention_heads"], config["layer_norm_eps"])
    max_tokens = min(recipe.max_tokens or config["max_position_embeddings"], config["max_position_embeddings"])
    tokenizer = Tokenizer.from_file(str(files[2]))
    tokenizer.enable_truncation(max_tokens)
    tokenizer.enable_padding(pad_id=config.get("pad_token_id") or 0)

    def forward(texts: list[str]) -> tuple[torch.Tensor, torch.Tensor]:
        encoded = tokenizer.encode_batch(texts)
        mask = torch.tensor([each.attention_mask for each in encoded])
        return bert.hidden(torch.tensor([each.ids for each in encoded]), mask), mask

    return Encoder(forward, recipe, config["hidden_size"], max_tokens)


def _is_plain(config: dict[str, Any]) -> bool:
    return (
        config.get("model_type") == "bert"
        and config.get("hidden_act") == "gelu"
        and config.get("position_embedding_type") in (None, "absolute")
        and not config.get("is_decoder")
    )


@dataclass(frozen=True, slots=True)
class Bert:
    weights: Weights
    layers: int
    heads: int
    epsilon: float

    def hidden(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """The last layer's vector of every token."""
        weights = self.weights
        state = embedding(ids, weights["embeddings.word_embeddings.weight"])
        state = state + weights["embeddings.position_embeddings.weight"][: ids.shape[1]]
        state = state + weights["embeddings.token_type_embeddings.weight"][0]
        state = self._norm(state, "embeddings.LayerNorm")
        seen = mask.bool()[:, None, None, :]
        for number in range(self.layers):
            layer = f"encoder.layer.{number}."
            attended = self._linear(self._attend(state, seen, layer), layer + "attention.output.dense")
            state = self._norm(attended + state, layer + "attention.output.LayerNorm")
            between = gelu(self._linear(state, layer + "intermediate.dense"))
            state = self._norm(self._linear(between, layer + "output.dense") + state, layer + "output.LayerNorm")
        return state

    def _attend(self, state: torch.Tensor, seen: torch.Tensor, layer: str) -> torch.Tensor:
        query, key, value = (
            self._linear(state, f"{layer}attention.self.{name}").unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for name in ("query", "key", "value")
        )
        return scaled_dot_product_attention(query, key, value, attn_mask=seen).transpose(1, 2).flatten(2)

    def _linear(self, state: torch.Tensor, name: str) -> torch.Tensor:
        return linear(state, self.weights[f"{name}.weight"], self.weights[f"{name}.bias"])

    def _norm(self, state: torch.Tensor, name: str) -> torch.Tensor:
        return layer_norm(
            state, state.shape[-1:], self.weights[f"{name}.weight"], self.weights[f"{name}.bias"], self.epsilon
        )
