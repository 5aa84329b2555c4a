"""The parts of Gemma 3 (Gemma Team, 2025) that are not Llama's: it scales its embeddings, multiplies a norm by one more
than its weight before it rounds, and has norms behind attention and the MLP, too.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from models.llama.config import LlamaConfig
from models.llama.decoder import DecoderLayer, Embedding, FamilyParts, LlamaDecoder, Norm, PagedAttention


class GemmaDecoder(LlamaDecoder):
    """Named and called like transformers' `Gemma3ForCausalLM`."""

    @staticmethod
    def parts() -> FamilyParts:
        return FamilyParts(_ScaledEmbedding, _GemmaLayer, _WideNorm)


class _ScaledEmbedding(Embedding):
    """The scale is rounded to the data type in which the weights are loaded, as by transformers."""

    def __init__(self, count: int, size: int, *, device: str) -> None:
        super().__init__(count, size, device=device)
        self.embed_scale = nn.Buffer(torch.tensor(size**0.5), persistent=False)

    def widened(self, ids: Tensor, dtype: torch.dtype) -> Tensor:
        return super().widened(ids, dtype) * self.embed_scale.to(dtype)


class _GemmaLayer(DecoderLayer):
    def __init__(self, config: LlamaConfig, number: int, norm: type[Norm]) -> None:
        super().__init__(config, number, norm)
        self.pre_feedforward_layernorm = norm(config.hidden_size, config.rms_norm_eps)
        self.post_feedforward_layernorm = norm(config.hidden_size, config.rms_norm_eps)

    def forward(self, hidden: Tensor, cos: Tensor, sin: Tensor, context: PagedAttention | None) -> Tensor:
        attended = self.self_attn(self.input_layernorm(hidden), cos, sin, context)
        hidden = hidden + self.post_attention_layernorm(attended)
        result: Tensor = hidden + self.post_feedforward_layernorm(self.mlp(self.pre_feedforward_layernorm(hidden)))
        return result


class _WideNorm(Norm):
    @property
    def eps(self) -> float:
        """By the name that it has in Gemma."""
        return self.variance_epsilon

    def forward(self, values: Tensor) -> Tensor:
        return (self.normed(values) * (1.0 + self.weight.float())).to(values.dtype)
