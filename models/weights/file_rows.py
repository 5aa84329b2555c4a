"""An embedding whose rows are read from the checkpoint's file when they are asked for.

A vocabulary's matrix that also makes the logits is kept in the form of its products, and the embedding beside it is
only read by rows. In memory it would be a second copy of the largest matrix of a small model: 0.34 GB of Gemma 3 270M.
A mapping takes memory for what is read, which the system may take back, and several workers share it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor, nn

from models.weights.embedding import NarrowEmbedding
from models.weights.layer import ServedLinear


@torch.inference_mode()
def leave_embedding_in_file(model: Any, folder: Path) -> bool:
    """Whether it is there now. It stays in memory if it is no copy of what makes the logits, or if no safetensors file
    of `folder` has it as it is.
    """
    head, embedding = model.get_output_embeddings(), model.get_input_embeddings()
    if not isinstance(head, ServedLinear) or not head.is_copy:
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
