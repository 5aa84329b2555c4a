"""The Llama family's forward pass in fewer and larger operations than transformers uses.

A small model's step, and a single sequence's step of any model, spend more time starting operations than computing. If
a decoder is built exactly like Llama's (Mistral, Qwen2 and Qwen3 are), its projections of one input become one product,
its norms one operation, and queries and keys are rotated together (forward.py). The weights are not duplicated: those
of the model's own layers become views of the joined ones, so its own forward still works, for adapters and for the
probe that compares the two.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from models.architectures import LENGTH_DEPENDENT_ROPE, context_limit
from models.engine.compute.attention import Context
from models.engine.compute.forward import Forward, Weights
from models.linear.layer import JoinedLinear, ServedLinear
from models.linear.layout import laid_out
from models.linear.product import Matrix
from models.llama.config import CLASSES
from models.llama.decoder import Linear
from models.torchscript import compiled

FAMILY = frozenset({"LlamaDecoder", *CLASSES.values()})
FIXED_ANGLES = frozenset({"default", "linear", "llama3", "yarn"}) | LENGTH_DEPENDENT_ROPE  # up to `context_limit`
MOST_ANGLES = 1 << 23
PLAIN = (nn.Linear, Linear)
SERVED = (ServedLinear, JoinedLinear)


class LeanDecoder:
    """Computes what `model` computes for packed tokens."""

    def __init__(self, model: Any, *, script: bool = True, fixed_angles: bool = True) -> None:
        self._model = model
        attention = model.model.layers[0].self_attn
        size = attention.head_dim
        queries, keys = attention.q_proj.out_features // size, attention.k_proj.out_features // size
        self._sign = torch.cat([-torch.ones(size // 2), torch.ones(size // 2)]).to(model.device)
        norm = model.model.norm
        self._turned = self._all_turns(size) if fixed_angles else []
        layers = [_weights(layer) for layer in model.model.layers]
        forward = Forward(
            layers,
            model.model.embed_tokens.weight.data,
            norm.weight.data,
            _head(model.lm_head),
            heads=(queries, queries + keys, size),
            scale=attention.scaling,
            eps=norm.variance_epsilon,
            turns=self._turned,
        )
        self.forward = compiled(forward) if script and model.device.type == "cpu" else forward
        self._held: tuple[Any, Any] = None, None

    @property
    def angles_are_fixed(self) -> bool:
        return bool(self._turned)

    def __call__(self, context: Context) -> Tensor:
        """The logits of the batch's last tokens."""
        batch, cache = context.batch, context.cache
        if self._held[0] is not cache or self._held[1] is not context.scratch:
            self._held = cache, context.scratch
            self.forward.keys, self.forward.values, self.forward.scratch = cache.keys, cache.values, context.scratch
        turns = [] if self._turned else self._turns(batch.positions.unsqueeze(0))
        logits: Tensor = self.forward(batch.numbers, batch.count, batch.drawing, context.groups, turns)
        return logits

    def _turns(self, positions: Tensor) -> list[Tensor]:
        """Cosines and sines [T, 1, size] of positions [1, T]."""
        cos, sin = self._model.model.rotary_emb(self._model.model.norm.weight, positions)
        return [cos[0].unsqueeze(1), (sin[0] * self._sign.to(sin.dtype)).unsqueeze(1)]

    def _all_turns(self, size: int) -> list[Tensor]:
        """Those of every position, if they never change and need little memory."""
        own, most = self._model.model.rotary_emb, context_limit(self._model.config)
        if own.rope_type not in FIXED_ANGLES or most * size > MOST_ANGLES:
            return []
        with torch.inference_mode():
            return self._turns(torch.arange(most, device=self._model.device).unsqueeze(0))


def lean(model: Any, **how: bool) -> LeanDecoder | None:
    """A fused forward for `model`, if it is built like the family and its layers are plain or served."""
    if type(model).__name__ not in FAMILY or getattr(model.config, "hidden_act", None) != "silu":
        return None
    linears = [module for layer in model.model.layers for module in layer.modules() if hasattr(module, "in_features")]
    known = all(map(_is_known, linears))
    return LeanDecoder(model, **how) if known and len(linears) == 7 * len(model.model.layers) else None


def _is_known(module: Any) -> bool:
    return type(module) in SERVED or (type(module) in PLAIN and type(module.weight.data) is Tensor)


def _weights(layer: Any) -> Weights:
    attention, mlp = layer.self_attn, layer.mlp
    norms = (attention.q_norm.weight.data, attention.k_norm.weight.data) if hasattr(attention, "q_norm") else ()
    return Weights(
        before=layer.input_layernorm.weight.data,
        after=layer.post_attention_layernorm.weight.data,
        qkv=_join(attention.q_proj, attention.k_proj, attention.v_proj),
        out=_join(attention.o_proj),
        gate_up=_join(mlp.gate_proj, mlp.up_proj),
        down=_join(mlp.down_proj),
        norms=norms,
        window=_window(attention),
    )


def _window(attention: Any) -> int | None:
    """Llama ignores sliding windows in its config; the Qwens have one per layer, and Mistral one for all."""
    own = attention.config if type(attention).__name__.startswith("Mistral") else attention
    window: int | None = getattr(own, "sliding_window", None)
    return window


def _join(*linears: Any) -> Matrix:
    """One product for all. Plain weights become views of its weight."""
    first = linears[0]
    if isinstance(first, ServedLinear):
        return first.matrix
    if isinstance(first, JoinedLinear):
        return first.shared.whole.matrix
    weight = laid_out(torch.cat([module.weight.data for module in linears]))
    bias = None if linears[0].bias is None else torch.cat([module.bias.data for module in linears])
    first = 0
    for module in linears:
        span = slice(first, first := first + module.out_features)
        module.weight = nn.Parameter(weight[span], requires_grad=False)
        if bias is not None:
            module.bias = nn.Parameter(bias[span], requires_grad=False)
    return Matrix(weight, bias)


def _head(head: Any) -> Matrix:
    """A copy if it is also the embedding, which is read by rows."""
    return head.matrix if isinstance(head, ServedLinear) else Matrix(laid_out(head.weight.data), head.bias)
