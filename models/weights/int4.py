"""Products with weights of four bits by torch's own kernels, on CPU and GPU.

The kernels (`aten::_weight_int4pack_mm_for_cpu`, `aten::_weight_int4pack_mm`) take groups of 32 to 256 inputs and stand
for `(quant - 8) * scale + zero`. They are fast in bfloat16 alone: in float32 and float16 the one for the CPU was ten
times slower than a plain product. With hundreds of rows a CPU's takes 1.3 to 1.7 times as long as a product of weights
that are unpacked once; but a row would then depend on how many are beside it. A GPU's takes many times as long, and no
row is independent there anyway: above `MANY_ROWS` its weight is unpacked.
"""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor
from torch.nn.functional import linear

from models.weights.gptq import Layer

GROUPS = (256, 128, 64, 32)
MANY_ROWS = 64
_INNER_TILES = 8
_TILE = 8, 16 * _INNER_TILES
"""Outputs and inputs that a GPU's kernel packs together."""


def why_not(outputs: int, inputs: int, group_size: int, device: torch.device, dtype: torch.dtype) -> str | None:
    """Why there is no fast kernel for a layer, or None."""
    if dtype != torch.bfloat16:
        return f"the int4 kernel is fast in bfloat16 only, and the model runs in {str(dtype).removeprefix('torch.')}"
    if _kernel_group(inputs, group_size) is None:
        return f"groups of {group_size} in {inputs} inputs are no multiple of 32"
    if device.type not in ("cpu", "cuda"):
        return f"there is no int4 kernel for {device.type}"
    return _why_not_cpu(outputs) if device.type == "cpu" else _why_not_cuda(outputs, inputs, device)


def _why_not_cpu(outputs: int) -> str | None:
    if torch.backends.cpu.get_cpu_capability() not in ("AVX2", "AVX512"):
        return "the int4 kernel is fast with AVX2 or AVX-512 only"
    return None if outputs % 16 == 0 else f"{outputs} outputs are no multiple of 16"


def _why_not_cuda(outputs: int, inputs: int, device: torch.device) -> str | None:
    if torch.version.hip or torch.cuda.get_device_capability(device) < (8, 0):
        return "the int4 kernel needs an NVIDIA GPU of compute capability 8.0"
    tiles = outputs % 8 == 0 and inputs % (16 * _INNER_TILES) == 0
    return None if tiles else f"[{outputs}, {inputs}] does not divide into the kernel's tiles"


class Int4Weight:
    """A weight [N, K] in packed form, standing for `(quants - 8) * scales + zeros`.

    `quants` are uint8 [N, K] below 16; `scales` and `zeros` float32 [G, N], of `group_size` inputs each.
    """

    def __init__(self, quants: Tensor, scales: Tensor, zeros: Tensor, group_size: int, device: torch.device) -> None:
        inputs = quants.shape[1]
        group = _kernel_group(inputs, group_size)
        assert group is not None
        self._group = group
        of = torch.arange(0, inputs, group) // group_size
        both = torch.stack([scales[of], zeros[of]], dim=-1).to(device, torch.bfloat16)
        self._packed, self._scales_and_zeros = _pack(quants.to(device)), both.contiguous()
        self.nbytes = self._packed.nbytes + self._scales_and_zeros.nbytes

    def times(self, given: Tensor) -> Tensor:
        """bfloat16 [rows, K] -> [rows, N]"""
        if given.is_cuda and len(given) > MANY_ROWS and (whole := self.unpacked()) is not None:
            return linear(given, whole)
        kernel = torch._weight_int4pack_mm_for_cpu if given.device.type == "cpu" else torch._weight_int4pack_mm  # noqa: SLF001
        return kernel(given, self._packed, self._group, self._scales_and_zeros)

    def unpacked(self) -> Tensor | None:
        """bfloat16 [N, K], of a GPU's packed form; None if that is not understood."""
        order = _order_in_tile(self._packed.device)
        if order is None:
            return None
        blocks, columns = self._packed.shape[:2]
        quants = torch.empty(blocks * columns, len(order), dtype=torch.uint8, device=order.device)
        quants[:, order] = _nibbles(self._packed)
        whole = quants.view(blocks, columns, *_TILE).transpose(1, 2).reshape(blocks * _TILE[0], -1, self._group)
        scale, zero = self._scales_and_zeros.transpose(0, 1).unsqueeze(-2).unbind(-1)
        return torch.addcmul(zero, whole.to(torch.bfloat16) - 8, scale).flatten(1)


class GptqWeight:
    """A `Weight` of packed quants of 4 or 8 bits.

    Eight bits are two times four: `quant = 16 * high + low`, so one kernel serves both and nothing is unpacked.
    """

    def __init__(self, layer: Layer, bias: Tensor | None, device: torch.device) -> None:
        scales, zeros, size = layer.scales, layer.zeros.float(), layer.group_size
        if layer.bits == 4:
            self._parts = [Int4Weight(layer.quants, scales, (8 - zeros) * scales, size, device)]
        else:
            low = Int4Weight(layer.quants & 15, scales, (136 - zeros) * scales, size, device)
            high = Int4Weight(layer.quants >> 4, 16 * scales, torch.zeros_like(scales), size, device)
            self._parts = [low, high]
        self.order = None if layer.order is None else layer.order.to(device)
        self.bias = None if bias is None else bias.to(device)
        beside = sum(one.nbytes for one in (self.order, self.bias) if one is not None)
        self.nbytes = beside + sum(part.nbytes for part in self._parts)

    def times(self, given: Tensor) -> Tensor:
        if self.order is not None:
            given = given.index_select(1, self.order)
        found = self._parts[0].times(given)
        for part in self._parts[1:]:
            found += part.times(given)
        return found if self.bias is None else found.add_(self.bias)


def _pack(quants: Tensor) -> Tensor:
    if quants.device.type == "cpu":
        return torch._convert_weight_to_int4pack_for_cpu(quants.int(), 1)  # noqa: SLF001
    pairs = (quants[:, ::2] << 4) | quants[:, 1::2]
    return torch._convert_weight_to_int4pack(pairs.contiguous(), _INNER_TILES)  # noqa: SLF001


@cache
def _order_in_tile(device: torch.device) -> Tensor | None:
    """Which number of a tile each of its packed nibbles is, found by packing the numbers themselves."""
    outputs, inputs = _TILE
    numbers = torch.arange(outputs * inputs, device=device)
    found = torch.zeros_like(numbers)
    for shift in range(0, 12, 4):
        part = (numbers >> shift & 15).to(torch.uint8).view(outputs, inputs)
        found += _nibbles(_pack(part)).view(-1).long() << shift
    return found if torch.equal(found.sort().values, numbers) else None


def _nibbles(packed: Tensor) -> Tensor:
    """Of each tile."""
    pairs = packed.view(torch.uint8).reshape(packed.shape[0] * packed.shape[1], -1, 1)
    return torch.cat([pairs & 15, pairs >> 4], dim=-1).flatten(1)


def _kernel_group(inputs: int, group_size: int) -> int | None:
    """The largest group of the kernels that cuts the checkpoint's groups evenly."""
    whole = min(group_size, inputs)
    return next((size for size in GROUPS if whole % size == 0 and inputs % size == 0), None)
