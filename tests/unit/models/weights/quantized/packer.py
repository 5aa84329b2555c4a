"""Writes GPTQ checkpoints bit by bit, from the format's description alone: nothing of the reader is used here."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file


@dataclass(frozen=True)
class Format:
    bits: int = 4
    sym: bool = True
    act_order: bool = False
    version: str = "gptq"
    group_size: int = 32

    def __str__(self) -> str:
        kind = f"{self.bits}-bit-{'sym' if self.sym else 'asym'}-{'act-order' if self.act_order else 'plain'}"
        return f"{kind}-{self.version}-{self.group_size}"


def pack(numbers: np.ndarray, bits: int) -> np.ndarray:
    """[A, B] -> int32 [A, B * bits / 32], the first number in the lowest bits."""
    words = np.zeros((numbers.shape[0], numbers.shape[1] * bits // 32), dtype=np.uint32)
    each = 32 // bits
    for at in range(numbers.shape[1]):
        words[:, at // each] |= numbers[:, at].astype(np.uint32) << np.uint32(bits * (at % each))
    return words.view(np.int32)


def quantize(weight: np.ndarray, form: Format, chance: np.random.Generator) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Round to nearest; the tensors of the layer, and the float32 weight that they stand for."""
    outputs, inputs = weight.shape
    size = inputs if form.group_size == -1 else form.group_size
    group = np.arange(inputs) // size
    if form.act_order:
        order = chance.permutation(inputs)
        group = np.empty_like(group)
        group[order] = np.arange(inputs) // size
    groups, most = group.max() + 1, 2**form.bits - 1
    scales = np.zeros((groups, outputs), dtype=np.float16)
    zeros = np.zeros((groups, outputs), dtype=np.int64)
    for at in range(groups):
        part = weight[:, group == at]
        low, high = np.minimum(part.min(1), -1e-3), np.maximum(part.max(1), 1e-3)
        if form.sym:
            scales[at] = 2 * np.maximum(-low, high) / most
            zeros[at] = 2 ** (form.bits - 1)
        else:
            scales[at] = (high - low) / most
            zeros[at] = np.clip(np.round(-low / scales[at]), 1 if form.version == "gptq" else 0, most)
    wide = scales.astype(np.float32)
    quants = np.clip(np.round(weight / wide[group].T) + zeros[group].T, 0, most).astype(np.int64)
    stored = (zeros - 1) if form.version == "gptq" else zeros
    tensors = {
        "qweight": pack(quants, form.bits).T,
        "qzeros": pack(stored, form.bits),
        "scales": scales,
        "g_idx": group.astype(np.int32),
    }
    return tensors, (quants - zeros[group].T) * wide[group].T


def quantize_checkpoint(folder: Path, forms: dict[str, Format], form: Format) -> dict[str, torch.Tensor]:
    """Quantize a plain checkpoint's blocks in place, a layer by `forms` where one of its keys is in the layer's name.

    The weights that the whole then stands for.
    """
    chance = np.random.default_rng(0)
    state = load_file(folder / "model.safetensors")
    plain = dict(state)
    for name in [name for name in state if ".layers." in name and state[name].dim() == 2]:
        own = next((other for key, other in forms.items() if key in name), form)
        tensors, stands_for = quantize(state.pop(name).float().numpy(), own, chance)
        for part, array in tensors.items():
            state[f"{name.removesuffix('weight')}{part}"] = torch.from_numpy(np.ascontiguousarray(array))
        plain[name] = torch.from_numpy(stands_for.astype(np.float32))
    (folder / "model.safetensors").unlink()
    save_file(state, folder / f"gptq_model-{form.bits}bit.safetensors", metadata={"format": "pt"})
    path = folder / "config.json"
    config = {
        "quant_method": "gptq",
        "bits": form.bits,
        "group_size": form.group_size,
        "sym": form.sym,
        "desc_act": form.act_order,
        "checkpoint_format": form.version,
        "dynamic": {f"+:.*{key}.*": {"bits": own.bits, "group_size": own.group_size} for key, own in forms.items()},
    }
    path.write_text(json.dumps(json.loads(path.read_text()) | {"quantization_config": config}))
    return plain
