"""Put the chosen forms into a model, whichever class it is of."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from models.llama.decoder import Linear, LlamaDecoder
from models.weights.embedding import NarrowEmbedding, keep_narrow
from models.weights.forms import Kind, Products
from models.weights.int8 import VOCABULARY_BLOCK
from models.weights.layer import JoinedLinear, ServedLinear, joined
from models.weights.matrix import Matrix, column_major, matrix_of

TOGETHER = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"))
"""Layers of one module that are given the same tensor."""
ROUTERS = frozenset({"gate", "router", "shared_expert_gate"})
"""They choose experts: small, and an error in them changes everything behind them."""


@torch.inference_mode()
def replace_layers(model: Any, products: Products, dtype: torch.dtype) -> None:
    """Keep the linear layers of `model` in the forms of `products`, one after the other: each frees its weight.

    The model may be in a narrower data type than `dtype`, in which it computes afterwards. Its embedding stays narrow
    unless it is a plain layer, too.
    """
    head, embedding = model.get_output_embeddings(), model.get_input_embeddings()
    is_tied = head is not None and head.weight is embedding.weight
    if products.layers is not Kind.PLAIN:
        for module in [one for name, one in model.named_modules() if name and not isinstance(one, nn.ModuleList)]:
            _replace_children(module, products.layers, head, dtype)
    if products.vocabulary is not Kind.PLAIN and is_linear(head):
        name = next(name for name, module in model.named_modules() if module is head)
        block, whole = VOCABULARY_BLOCK, weight_and_bias(head)
        matrix = matrix_of(*whole, products.vocabulary, dtype, block)
        put(model, name, ServedLinear(matrix, whole[0].shape[1], len(whole[0]), is_copy=is_tied))
        shared = None
        if products.vocabulary is Kind.STORED and is_tied:
            shared = embedding.weight = nn.Parameter(matrix.parts[0], requires_grad=False)  # one for both
        if not isinstance(model, LlamaDecoder):  # whose weights are copies
            _release_files(model, shared)
    elif is_tied and model.dtype is not dtype:
        model.to(dtype)
    if model.dtype is dtype:
        return
    if isinstance(model, LlamaDecoder):  # which widens rows itself
        narrow = model.model.embed_tokens.weight.data
        model.to(dtype)
        model.model.embed_tokens.weight = nn.Parameter(narrow, requires_grad=False)
    else:
        keep_narrow(model, dtype)
        model.to(dtype)


def _release_files(model: Any, copied: nn.Parameter | None) -> None:
    """What is left of the weights is copied: as parts of mapped files they would keep the whole files in memory."""
    copies = {
        one: one if one is copied else nn.Parameter(one.data.clone(), requires_grad=False) for one in model.parameters()
    }
    for module in model.modules():
        for name, weight in list(module.named_parameters(recurse=False)):
            setattr(module, name, copies[weight])


def _replace_children(module: nn.Module, kind: Kind, head: Any, dtype: torch.dtype) -> None:
    layers = {
        name: child
        for name, child in module.named_children()
        if is_linear(child) and child is not head and name not in ROUTERS
    }
    for names in TOGETHER:
        parts = [layers[name] for name in names if name in layers]
        if len(parts) < len(names) or len({(width_of(part), part.bias is None) for part in parts}) > 1:
            continue
        shared = joined([weight_and_bias(part) for part in parts], kind, dtype)
        for name, part in zip(names, shared, strict=True):
            setattr(module, name, part)
            del layers[name]
    for name, layer in layers.items():
        setattr(module, name, ServedLinear.of(*weight_and_bias(layer), kind, dtype))


def put(model: Any, name: str, layer: nn.Module) -> None:
    """In the place of what `model` has under that path."""
    parent, _, own = name.rpartition(".")
    setattr(model.get_submodule(parent), own, layer)


def lay_out(model: Any) -> None:
    """Every plain linear layer of `model`, except one that shares its weight with the embedding, which is read by
    rows.
    """
    embedding = model.get_input_embeddings().weight
    for module in model.modules():
        if type(module) is nn.Linear and type(module.weight.data) is Tensor and module.weight is not embedding:
            module.weight = nn.Parameter(column_major(module.weight.data), requires_grad=False)


def is_linear(module: Any) -> bool:
    """A layer with a plain weight: `nn.Linear` itself, no class of it that may compute something else, or GPT-2's."""
    known = type(module) in (nn.Linear, Linear) or _is_transposed(module)
    return known and type(module.weight.data) is Tensor


def _is_transposed(module: Any) -> bool:
    """GPT-2 and its relatives."""
    return type(module).__name__ == "Conv1D"


def width_of(layer: Any) -> int:
    return int(layer.weight.shape[0 if _is_transposed(layer) else 1])


def weight_and_bias(layer: Any) -> tuple[Tensor, Tensor | None]:
    """[outputs, inputs], and [outputs]."""
    weight = layer.weight.data.t() if _is_transposed(layer) else layer.weight.data
    return weight, None if layer.bias is None else layer.bias.data


def has_integer_layers(model: Any) -> bool:
    """Other layers than the last one."""
    return any(one.is_integer for one in _matrices(model))


def has_narrow_layers(model: Any) -> bool:
    """Other layers than the last one whose weights are integers, or bfloat16 that multiplies float32."""
    return any(one.is_integer or (one.is_stored and one.parts[0].dtype is torch.bfloat16) for one in _matrices(model))


def has_stored_layers(model: Any) -> bool:
    return any(one.is_stored for one in _matrices(model))


def _matrices(model: Any) -> list[Matrix]:
    head = model.get_output_embeddings()
    return [one.matrix for one in served(model) if isinstance(one.matrix, Matrix) and one is not head]


def held_bytes(model: Any) -> int:
    """Of all weights and buffers in memory, in the forms in which they are kept."""
    tensors = {one.data_ptr(): one.nbytes for one in model.state_dict().values() if one.numel()}
    tensors |= {one.weight.data_ptr(): one.weight.nbytes for one in model.modules() if isinstance(one, NarrowEmbedding)}
    for shared in (one.matrix for one in served(model) if isinstance(one.matrix, Matrix) and one.matrix.is_stored):
        tensors.pop(shared.parts[0].data_ptr(), None)
    return sum(tensors.values()) + sum(one.matrix.nbytes for one in served(model))


def served(model: Any) -> Iterator[ServedLinear]:
    """The layers of `model` in forms of their own, each matrix once."""
    for module in model.modules():
        if isinstance(module, ServedLinear):
            yield module
        elif isinstance(module, JoinedLinear) and module.first == 0:
            yield module.shared.whole
