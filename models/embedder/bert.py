"""BERT without transformers, for a folder that contains one: MiniLM and most small encoders.

Importing transformers' model classes takes several times longer than loading and running such an encoder, and `parley
search` would pay for it at every call.
"""

# No annotations from __future__, because TorchScript reads those of the class.

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.nn.functional import embedding, gelu, layer_norm, linear, scaled_dot_product_attention

from models.embedder.encoder import Encoder
from models.embedder.recipe import VectorRecipe
from models.machine.torchscript import compiled

Weights = dict[str, Tensor]
_SEGMENT = "embeddings.token_type_embeddings.weight"
# Of each layer, after queries, keys and values.
_LAYER = (
    "attention.output.dense", "attention.output.LayerNorm", "intermediate.dense", "output.dense", "output.LayerNorm",
)  # fmt: skip


def load_bert(folder: Path, recipe: VectorRecipe, *, script: bool = False) -> Encoder | None:
    """None if the folder contains another kind of model.

    As a `script` it takes longer to load, and then computes beside a busy event loop without slowing it down
    (models/machine/torchscript.py).
    """
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
    run = compiled(bert) if script else bert
    tokenizer = Tokenizer.from_file(str(files[2]))
    tokenizer.enable_truncation(max_tokens)
    tokenizer.enable_padding(pad_id=config.get("pad_token_id") or 0)

    def forward(texts: list[str]) -> tuple[Tensor, Tensor]:
        encoded = tokenizer.encode_batch(texts)
        mask = torch.tensor([each.attention_mask for each in encoded])
        return run(torch.tensor([each.ids for each in encoded]), mask), mask

    def count(texts: list[str]) -> int:
        return sum(sum(each.attention_mask) for each in tokenizer.encode_batch(texts))

    return Encoder(forward, recipe, config["hidden_size"], max_tokens, count, script=script)


def _is_plain(config: dict[str, Any]) -> bool:
    return (
        config.get("model_type") == "bert"
        and config.get("hidden_act") == "gelu"
        and config.get("position_embedding_type") in (None, "absolute")
        and not config.get("is_decoder")
    )


class Bert(nn.Module):
    """`layers` holds the tensors of each layer in the order of `_LAYER`; queries, keys and values are one product."""

    layers: list[list[Tensor]]

    def __init__(self, weights: Weights, layers: int, heads: int, epsilon: float) -> None:
        super().__init__()
        self.words = weights["embeddings.word_embeddings.weight"]
        self.positions = weights["embeddings.position_embeddings.weight"] + weights[_SEGMENT][0]
        self.norm = weights["embeddings.LayerNorm.weight"]
        self.norm_bias = weights["embeddings.LayerNorm.bias"]
        self.layers = [_layer(weights, f"encoder.layer.{number}.") for number in range(layers)]
        self.heads = heads
        self.epsilon = epsilon

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        """The last layer's vector [texts, tokens, width] of every token of `ids` [texts, tokens]."""
        state = embedding(ids, self.words) + self.positions[: ids.size(1)]
        width = [state.size(2)]
        state = layer_norm(state, width, self.norm, self.norm_bias, self.epsilon)
        visible = mask.to(torch.bool)[:, None, None, :]
        for layer in self.layers:
            joined = linear(state, layer[0], layer[1]).unflatten(2, (3, self.heads, -1))
            query, key, value = joined.permute(2, 0, 3, 1, 4).unbind(0)
            attended = scaled_dot_product_attention(query, key, value, attn_mask=visible).transpose(1, 2).flatten(2)
            state = layer_norm(linear(attended, layer[2], layer[3]) + state, width, layer[4], layer[5], self.epsilon)
            between = gelu(linear(state, layer[6], layer[7]))
            state = layer_norm(linear(between, layer[8], layer[9]) + state, width, layer[10], layer[11], self.epsilon)
        return state


def _layer(weights: Weights, layer: str) -> list[Tensor]:
    kinds = ("weight", "bias")
    parts = [f"{layer}attention.self.{part}" for part in ("query", "key", "value")]
    joined = [torch.cat([weights[f"{part}.{kind}"] for part in parts]) for kind in kinds]
    return joined + [weights[f"{layer}{name}.{kind}"] for name in _LAYER for kind in kinds]
