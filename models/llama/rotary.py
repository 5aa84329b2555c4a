"""Rotary position embeddings (Su et al., RoFormer, 2021) whose angles depend on nothing but the position."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from models.llama.config import LlamaConfig


class Rotary(nn.Module):
    """Named and called like transformers' `LlamaRotaryEmbedding`, or Gemma 3's with its kinds of layers."""

    def __init__(self, config: LlamaConfig, device: torch.device) -> None:
        super().__init__()
        types = {kind: rope["rope_type"] for kind, rope in config.ropes.items()}
        self.rope_type: str | dict[str, str] = types if config.layer_types else types[""]
        self._frequencies = {kind: frequencies(rope, config.head_dim).to(device) for kind, rope in config.ropes.items()}

    def forward(self, like: Tensor, positions: Tensor, kind: str = "") -> tuple[Tensor, Tensor]:
        """Cosines and sines [1, T, head size] of positions [1, T], in the dtype of `like`."""
        angles = (self._frequencies[kind][None, :, None] @ positions[:, None, :].float()).transpose(1, 2)
        both = torch.cat((angles, angles), dim=-1)
        return both.cos().to(like.dtype), both.sin().to(like.dtype)


def frequencies(rope: dict[str, Any], size: int) -> Tensor:
    """[size / 2] of a head of that size, float32."""
    frequencies = 1.0 / (rope["rope_theta"] ** (torch.arange(0, size, 2, dtype=torch.float) / size))
    if rope["rope_type"] == "linear":
        return frequencies / rope["factor"]
    return _by_wavelength(frequencies, rope) if rope["rope_type"] == "llama3" else frequencies


def _by_wavelength(frequencies: Tensor, rope: dict[str, Any]) -> Tensor:
    """Llama 3.1's: long waves are stretched by `factor`, short ones stay, and those between are interpolated."""
    trained, low, high = (
        rope[key] for key in ("original_max_position_embeddings", "low_freq_factor", "high_freq_factor")
    )
    waves = trained / (2 * math.pi / frequencies)  # of the trained context
    smooth = ((waves - low) / (high - low)).clamp(0.0, 1.0)
    return (1 - smooth) * frequencies / rope["factor"] + smooth * frequencies


def rotate(values: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """`values` [T, heads, head size]; `cos` and `sin` [T, 1, head size]."""
    first, second = values.chunk(2, -1)
    return values * cos + torch.cat((-second, first), dim=-1) * sin
