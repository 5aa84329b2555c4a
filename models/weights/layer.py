"""The module that replaces a linear layer of a model, and those that share one product.

Layers that are given the same tensor (queries, keys and values; gate and up) are one matrix: the first of them computes
the product of all, the others return their parts of it.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from models.weights.forms import Kind
from models.weights.matrix import Weight, matrix_of


class ServedLinear(nn.Module):
    """`nn.Linear` over a weight in another form. `is_copy`: the embedding has the same weights."""

    def __init__(self, matrix: Weight, inputs: int, outputs: int, *, is_copy: bool = False) -> None:
        super().__init__()
        self.matrix, self.is_copy = matrix, is_copy
        self.in_features, self.out_features = inputs, outputs

    @classmethod
    def of(cls, weight: Tensor, bias: Tensor | None, kind: Kind, dtype: torch.dtype) -> ServedLinear:
        """`weight` is [outputs, inputs]; see `matrix_of`."""
        return cls(matrix_of(weight, bias, kind, dtype), weight.shape[1], weight.shape[0])

    def forward(self, given: Tensor) -> Tensor:
        """[..., inputs] -> [..., outputs]"""
        return self.matrix.times(given.reshape(-1, self.in_features)).view(*given.shape[:-1], self.out_features)

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}, {type(self.matrix).__name__}"


class JoinedLinear(nn.Module):
    """A part of the outputs of a `whole`, which several layers share: `shared` is one for all of them."""

    def __init__(self, shared: SharedProduct, first: int, outputs: int) -> None:
        super().__init__()
        self.shared = shared
        self.in_features, self.out_features = shared.whole.in_features, outputs
        self.first = first

    def forward(self, given: Tensor) -> Tensor:
        return self.shared.of(given).narrow(-1, self.first, self.out_features)


class SharedProduct:
    """The last product of a matrix, until each of its layers has had its part."""

    def __init__(self, whole: ServedLinear, layers: int) -> None:
        self.whole = whole
        self._layers = layers
        self._given: Tensor | None = None
        self._found = torch.empty(0)
        self._asked = 0

    def of(self, given: Tensor) -> Tensor:
        if self._given is not given:
            self._given, self._found, self._asked = given, self.whole(given), 0
        self._asked += 1
        found = self._found
        if self._asked == self._layers:
            self._given, self._found = None, torch.empty(0)
        return found


def joined(weights: Sequence[tuple[Tensor, Tensor | None]], kind: Kind, dtype: torch.dtype) -> list[JoinedLinear]:
    """Layers of one input, by their weights [outputs, inputs] and their biases, which all have or none."""
    biases = [bias for _, bias in weights if bias is not None]
    bias = torch.cat(biases) if biases else None
    whole = ServedLinear.of(torch.cat([weight for weight, _ in weights]), bias, kind, dtype)
    shared = SharedProduct(whole, len(weights))
    layers, first = [], 0
    for weight, _ in weights:
        layers.append(JoinedLinear(shared, first, len(weight)))
        first += len(weight)
    return layers


def plain_linear(weight: Tensor, bias: Tensor | None) -> nn.Linear:
    """An `nn.Linear` around an existing weight."""
    made = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None, device="meta")
    made.weight = nn.Parameter(weight, requires_grad=False)
    if bias is not None:
        made.bias = nn.Parameter(bias, requires_grad=False)
    return made
