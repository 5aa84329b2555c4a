"""The layer that replaces a quantized one: packed if a kernel fits, plain otherwise."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from models.weights.gptq import Layer
from models.weights.int4 import Int4Weight


class PackedLinear(nn.Module):
    """`nn.Linear` over packed quants of 4 or 8 bits.

    Eight bits are two times four: `quant = 16 * high + low`, so one kernel serves both and nothing is unpacked.
    """

    order: Tensor | None
    bias: Tensor | None

    def __init__(self, layer: Layer, bias: Tensor | None, device: torch.device) -> None:
        super().__init__()
        self.out_features, self.in_features = layer.quants.shape
        self.bits = layer.bits
        scales, zeros, size = layer.scales, layer.zeros.float(), layer.group_size
        if layer.bits == 4:
            parts = [Int4Weight(layer.quants, scales, (8 - zeros) * scales, size, device)]
        else:
            low = Int4Weight(layer.quants & 15, scales, (136 - zeros) * scales, size, device)
            high = Int4Weight(layer.quants >> 4, 16 * scales, torch.zeros_like(scales), size, device)
            parts = [low, high]
        self.parts = nn.ModuleList(parts)
        self.register_buffer("order", None if layer.order is None else layer.order.to(device))
        self.register_buffer("bias", None if bias is None else bias.to(device))

    def forward(self, given: Tensor) -> Tensor:
        """[..., K] -> [..., N]"""
        rows = given.reshape(-1, self.in_features)
        if self.order is not None:
            rows = rows.index_select(1, self.order)
        found = self.parts[0](rows)
        for part in self.parts[1:]:
            found += part(rows)
        if self.bias is not None:
            found += self.bias
        return found.view(*given.shape[:-1], self.out_features)

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}, bits={self.bits}"


def plain_linear(weight: Tensor, bias: Tensor | None) -> nn.Linear:
    """An `nn.Linear` around an existing weight."""
    made = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None, device="meta")
    made.weight = nn.Parameter(weight, requires_grad=False)
    if bias is not None:
        made.bias = nn.Parameter(bias, requires_grad=False)
    return made
