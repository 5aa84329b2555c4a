"""A decoder like Llama's, layer by layer: RMS norms, rotary embeddings, grouped queries and a gated MLP. Gemma 3 has
parts of its own (gemma.py).

Steps are computed by the engine's fused forward. This one is for adapters, which hook into the layers, and for the
probe that compares the two, so it is written as in the papers (Touvron et al., LLaMA, 2023; Yang et al., Qwen3, 2025).
Modules have the names that checkpoints give them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, scaled_dot_product_attention, silu

from models.llama.config import GELU, LlamaConfig
from models.llama.rotary import Rotary, rotate


class PagedAttention(Protocol):
    """What a layer calls instead of its own attention, on packed tokens of many sequences."""

    def attend(
        self, layer: int, query: Tensor, key: Tensor, value: Tensor, *, scale: float, window: int | None
    ) -> Tensor:
        """`query` and the result are [T, heads, size], `key` and `value` [T, KV heads, size]."""


class Linear(nn.Linear):
    """Without weights until a checkpoint's are assigned: drawing random ones imports half of torch, even on the meta
    device.
    """

    def __init__(self, inputs: int, outputs: int, *, bias: bool) -> None:
        super().__init__(inputs, outputs, bias=bias, device="meta")

    def reset_parameters(self) -> None:
        pass


class Embedding(nn.Embedding):
    """See `Linear`. Its weight may be narrower than the model computes."""

    def reset_parameters(self) -> None:
        pass

    def widened(self, ids: Tensor, dtype: torch.dtype) -> Tensor:
        """[T, size] in `dtype`."""
        rows: Tensor = self(ids)
        return rows.to(dtype)


@dataclass(frozen=True, slots=True)
class Output:
    """`logits` [1, T, vocabulary], in the form of transformers' models."""

    logits: Tensor


class FamilyParts(NamedTuple):
    """The classes of a family's parts."""

    embedding: type[Embedding]
    layer: type[DecoderLayer]
    norm: type[Norm]


class LlamaDecoder(nn.Module):
    """Named and called like transformers' causal models of the family."""

    @staticmethod
    def parts() -> FamilyParts:
        return FamilyParts(Embedding, DecoderLayer, Norm)

    def __init__(self, config: LlamaConfig, device: torch.device) -> None:
        """Created without weights, on the meta device; `Rotary` has none and is on `device`."""
        super().__init__()
        self.config = config
        self.model = _Layers(config, device, self.parts())
        self.lm_head = Linear(config.hidden_size, config.vocab_size, bias=False)

    def get_output_embeddings(self) -> nn.Module:
        return self.lm_head

    def get_input_embeddings(self) -> nn.Module:
        return self.model.embed_tokens

    @property
    def device(self) -> torch.device:
        return self.model.norm.weight.device

    @property
    def dtype(self) -> torch.dtype:
        return self.model.norm.weight.dtype

    def forward(
        self,
        input_ids: Tensor,
        position_ids: Tensor | None = None,
        logits_to_keep: Tensor | None = None,
        context: PagedAttention | None = None,
        *,
        use_cache: bool = False,
    ) -> Output:
        """`input_ids` and `position_ids` are [1, T]. Without a `context` they are one sequence, which attends to
        itself. `logits_to_keep` are the positions of the logits that are returned, all by default.
        """
        if use_cache:
            raise NotImplementedError("the KV cache belongs to the engine")
        positions = torch.arange(input_ids.shape[1], device=self.device)[None] if position_ids is None else position_ids
        hidden = self.model(input_ids[0], positions, context)
        if logits_to_keep is not None:
            hidden = hidden[logits_to_keep]
        return Output(self.lm_head(hidden).unsqueeze(0))


class _Layers(nn.Module):
    def __init__(self, config: LlamaConfig, device: torch.device, parts: FamilyParts) -> None:
        super().__init__()
        self.embed_tokens = parts.embedding(config.vocab_size, config.hidden_size, device="meta")
        self.layers = nn.ModuleList(parts.layer(config, number, parts.norm) for number in range(len(config.windows)))
        self._kinds = config.layer_types or ("",) * len(self.layers)
        self.norm = parts.norm(config.hidden_size, config.rms_norm_eps)
        self.rotary_emb = Rotary(config, device)

    def forward(self, ids: Tensor, positions: Tensor, context: PagedAttention | None) -> Tensor:
        hidden = self.embed_tokens.widened(ids, self.norm.weight.dtype)
        turns = {
            kind: [part[0].unsqueeze(1) for part in self.rotary_emb(hidden, positions, kind)]
            for kind in set(self._kinds)
        }
        for layer, kind in zip(self.layers, self._kinds, strict=True):
            hidden = layer(hidden, *turns[kind], context)
        normed: Tensor = self.norm(hidden)
        return normed


class DecoderLayer(nn.Module):
    def __init__(self, config: LlamaConfig, number: int, norm: type[Norm]) -> None:
        super().__init__()
        self.self_attn = _Attention(config, number, norm)
        self.mlp = _Mlp(config)
        self.input_layernorm = norm(config.hidden_size, config.rms_norm_eps)
        self.post_attention_layernorm = norm(config.hidden_size, config.rms_norm_eps)

    def forward(self, hidden: Tensor, cos: Tensor, sin: Tensor, context: PagedAttention | None) -> Tensor:
        hidden = hidden + self.self_attn(self.input_layernorm(hidden), cos, sin, context)
        result: Tensor = hidden + self.mlp(self.post_attention_layernorm(hidden))
        return result


class _Attention(nn.Module):
    def __init__(self, config: LlamaConfig, number: int, norm: type[Norm]) -> None:
        super().__init__()
        self.number = number
        self.head_dim = config.head_dim
        self.scaling = config.scaling
        self.layer_type = config.layer_types[number] if config.layer_types else ""
        self.sliding_window = config.windows[number]
        queries, keys = config.num_attention_heads * config.head_dim, config.num_key_value_heads * config.head_dim
        self.q_proj = Linear(config.hidden_size, queries, bias=config.qkv_bias)
        self.k_proj = Linear(config.hidden_size, keys, bias=config.qkv_bias)
        self.v_proj = Linear(config.hidden_size, keys, bias=config.qkv_bias)
        self.o_proj = Linear(queries, config.hidden_size, bias=config.out_bias)
        if config.has_head_norms:
            self.q_norm = norm(config.head_dim, config.rms_norm_eps)
            self.k_norm = norm(config.head_dim, config.rms_norm_eps)

    def forward(self, hidden: Tensor, cos: Tensor, sin: Tensor, context: PagedAttention | None) -> Tensor:
        query, key, value = (
            projection(hidden).view(len(hidden), -1, self.head_dim)
            for projection in (self.q_proj, self.k_proj, self.v_proj)
        )
        if hasattr(self, "q_norm"):
            query, key = self.q_norm(query), self.k_norm(key)
        query, key = rotate(query, cos, sin), rotate(key, cos, sin)
        if context is None:
            attended = self._attend(query, key, value)
        else:
            attended = context.attend(self.number, query, key, value, scale=self.scaling, window=self.sliding_window)
        result: Tensor = self.o_proj(attended.reshape(len(hidden), -1))
        return result

    def _attend(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """All tokens are one sequence."""
        at = torch.arange(len(query), device=query.device)
        visible = at <= at[:, None]
        if self.sliding_window is not None:
            visible &= at > at[:, None] - self.sliding_window
        query, key, value = (part.transpose(0, 1).unsqueeze(0) for part in (query, key, value))
        out = scaled_dot_product_attention(query, key, value, attn_mask=visible, scale=self.scaling, enable_gqa=True)
        return out[0].transpose(0, 1)


class _Mlp(nn.Module):
    def __init__(self, config: LlamaConfig) -> None:
        super().__init__()
        self.gate_proj = Linear(config.hidden_size, config.intermediate_size, bias=config.mlp_bias)
        self.up_proj = Linear(config.hidden_size, config.intermediate_size, bias=config.mlp_bias)
        self.down_proj = Linear(config.intermediate_size, config.hidden_size, bias=config.mlp_bias)
        self._is_gelu = config.hidden_activation == GELU

    def forward(self, hidden: Tensor) -> Tensor:
        gate = self.gate_proj(hidden)
        opened = gelu(gate, approximate="tanh") if self._is_gelu else silu(gate)
        result: Tensor = self.down_proj(opened * self.up_proj(hidden))
        return result


class Norm(nn.Module):
    """Root mean square (Zhang and Sennrich, 2019), computed in float32."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(size, device="meta"))
        self.variance_epsilon = eps

    def forward(self, values: Tensor) -> Tensor:
        return self.weight * self.normed(values).to(values.dtype)

    def normed(self, values: Tensor) -> Tensor:
        full = values.float()
        return full * torch.rsqrt(full.pow(2).mean(-1, keepdim=True) + self.variance_epsilon)
