"""Products with weights of four bits by torch's own kernels, on CPU and GPU.

The kernels (`aten::_weight_int4pack_mm_for_cpu`, `aten::_weight_int4pack_mm`) take groups of 32 to 256 inputs and stand
for `(quant - 8) * scale + zero`. They are fast in bfloat16 alone: in float32 and float16 the one for the CPU was ten
times slower than a plain product. With many rows the CPU kernel falls behind as well, since it unpacks the weights
again for every few rows; from `MANY_ROWS` on a block of outputs is unpacked once for all rows instead.
"""

from __future__ import annotations

import torch
from torch import Tensor

GROUPS = (256, 128, 64, 32)
MANY_ROWS = 80
_INNER_TILES = 8
_BLOCK = 64  # outputs that are contiguous in the CPU kernel's format
_BLOCKS = 4  # unpacked at once: they stay in the CPU's cache


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


class Int4Weight(torch.nn.Module):
    """A weight [N, K] in packed form, standing for `(quants - 8) * scales + zeros`.

    `quants` are uint8 [N, K] below 16; `scales` and `zeros` float32 [G, N], of `group_size` inputs each.
    """

    packed: Tensor
    scales_and_zeros: Tensor

    def __init__(self, quants: Tensor, scales: Tensor, zeros: Tensor, group_size: int, device: torch.device) -> None:
        super().__init__()
        outputs, inputs = quants.shape
        group = _kernel_group(inputs, group_size)
        assert group is not None
        self.group = group
        of = torch.arange(0, inputs, group) // group_size
        both = torch.stack([scales[of], zeros[of]], dim=-1).to(device, torch.bfloat16)
        self.register_buffer("packed", _pack(quants.to(device)))
        self.register_buffer("scales_and_zeros", both.contiguous())
        # The CPU kernel's block layout is its own; if it cannot be read back, all products use the kernel.
        self.blocked = device.type == "cpu" and outputs % _BLOCK == 0 and torch.equal(self._read_back(), quants)

    def forward(self, rows: Tensor) -> Tensor:
        """bfloat16 [M, K] -> [M, N]."""
        if self.blocked and len(rows) >= MANY_ROWS:
            return self._unpacked(rows)
        kernel = torch._weight_int4pack_mm_for_cpu if rows.device.type == "cpu" else torch._weight_int4pack_mm  # noqa: SLF001
        return kernel(rows, self.packed, self.group, self.scales_and_zeros)

    def _blocks(self) -> Tensor:
        return self.packed.view(len(self.packed) // _BLOCK, -1, _BLOCK // 2)

    def _read_back(self) -> Tensor:
        return _unpack(self._blocks()).transpose(1, 2).flatten(0, 1)

    def _unpacked(self, rows: Tensor) -> Tensor:
        blocks = self._blocks()
        count, inputs, _ = blocks.shape
        both = self.scales_and_zeros
        scales, zeros = both.view(len(both), count, 1, _BLOCK, 2).permute(4, 1, 0, 2, 3).contiguous()
        found = rows.new_empty(len(rows), count, _BLOCK)
        for at in range(0, count, _BLOCKS):
            part = slice(at, at + _BLOCKS)
            signed = _unpack(blocks[part]).view(torch.int8).sub_(8).to(rows.dtype)
            grouped = signed.view(len(signed), len(both), self.group, _BLOCK)
            weight = torch.addcmul(zeros[part], grouped, scales[part]).view(len(signed), inputs, _BLOCK)
            found[:, part] = torch.matmul(rows, weight).transpose(0, 1)
        return found.view(len(rows), -1)


def _pack(quants: Tensor) -> Tensor:
    if quants.device.type == "cpu":
        return torch._convert_weight_to_int4pack_for_cpu(quants.int(), 1)  # noqa: SLF001
    pairs = (quants[:, ::2] << 4) | quants[:, 1::2]
    return torch._convert_weight_to_int4pack(pairs.contiguous(), _INNER_TILES)  # noqa: SLF001


def _unpack(blocks: Tensor) -> Tensor:
    """uint8 [B, K, 32] -> [B, K, 64]: the low halves are the first 32 outputs of a block."""
    halves = blocks.new_empty(*blocks.shape[:-1], 2, blocks.shape[-1])
    torch.bitwise_and(blocks, 15, out=halves[..., 0, :])
    torch.bitwise_right_shift(blocks, 4, out=halves[..., 1, :])
    return halves.flatten(-2)


def _kernel_group(inputs: int, group_size: int) -> int | None:
    """The largest group of the kernels that cuts the checkpoint's groups evenly."""
    whole = min(group_size, inputs)
    return next((size for size in GROUPS if whole % size == 0 and inputs % size == 0), None)
