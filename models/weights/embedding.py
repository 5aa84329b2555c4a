"""Embeddings that take less memory than the model computes with.

One stays in the checkpoint's own data type: rows are widened as they are read, which is exact. The vocabulary of a
small model is most of its weights: that of Gemma 3 270M takes 0.34 GB in bfloat16 and 0.67 in float32.

One whose matrix also makes the logits is read from the checkpoint's file, row by row as they are asked for: the matrix
is kept in the form of its products, and in memory the embedding would be a second copy. A mapping takes memory for what
is read, which the system may take back, and several workers share it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor, nn
from torch.func import functional_call

from models.weights.layer import ServedLinear
from models.weights.matrix import Matrix


class NarrowEmbedding(nn.Module):
    """Computes what `inner` does, a module of transformers, with its weight in `dtype`."""

    def __init__(self, inner: nn.Embedding, dtype: torch.dtype) -> None:
        super().__init__()
        inner.padding_idx = None  # of training; `embedding` would look for it among the rows of one call
        self.weight = inner.weight.data  # no parameter: the model's data type is that of its parameters
        self._inner, self._dtype = (inner,), dtype

    @property
    def inner(self) -> nn.Embedding:
        return self._inner[0]

    def forward(self, ids: Tensor) -> Tensor:
        rows = self.weight[ids.flatten()].to(self._dtype)
        numbers = torch.arange(len(rows), device=ids.device).view(ids.shape)
        found: Tensor = functional_call(self._inner[0], {"weight": rows}, (numbers,))
        return found


def keep_narrow(model: Any, dtype: torch.dtype) -> None:
    """Keep the embedding of a model of transformers as it is, and have it return `dtype`."""
    inner = model.get_input_embeddings()
    if isinstance(inner, nn.Embedding) and inner.weight.dtype is not dtype and inner.max_norm is None:
        model.set_input_embeddings(NarrowEmbedding(inner, dtype))


@torch.inference_mode()
def leave_embedding_in_file(model: Any, folder: Path) -> bool:
    """Whether it is there now. It stays in memory if it is no copy of what makes the logits, or if no safetensors file
    of `folder` has it as it is.
    """
    head, embedding = model.get_output_embeddings(), model.get_input_embeddings()
    if not isinstance(head, ServedLinear) or not head.is_copy:
        return False
    if isinstance(head.matrix, Matrix) and head.matrix.is_stored:  # it is the embedding
        return False
    for path, key in _places(folder, embedding.weight):
        if not torch.equal(_mapped(path, key), embedding.weight):
            continue
        rows = _mapped(path, key)  # of which nothing has been read
        if isinstance(embedding, NarrowEmbedding):
            embedding.weight, embedding = rows, embedding.inner
        embedding.weight = nn.Parameter(rows, requires_grad=False)
        return True
    return False


def _places(folder: Path, like: Tensor) -> Iterator[tuple[Path, str]]:
    """Where a file has a matrix of its shape and data type."""
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, framework="pt") as file:
            keys = [key for key in file.keys() if file.get_slice(key).get_shape() == list(like.shape)]  # noqa: SIM118
        yield from ((path, key) for key in keys if _mapped(path, key).dtype is like.dtype)


def _mapped(path: Path, key: str) -> Tensor:
    with safe_open(path, framework="pt") as file:
        tensor: Tensor = file.get_tensor(key)
    return tensor
