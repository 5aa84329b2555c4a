"""The forward of the Llama family in fewer and larger operations than transformers writes it.

A small model's step, and a single row's step of any model, spend more time on starting operations than on computing
them. So where a decoder is built exactly as Llama's (Mistral, Qwen2 and Qwen3 are), its projections of one input become
one product, its norms one operation, and queries and keys are rotated together. The weights are not doubled: those of
the model's own layers become views of the joined ones, so its own forward still works, for adapters and for the probe
that compares the two. On a CPU all of it is one script (`scripted`), which runs without the interpreter.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, rms_norm, silu

from models.engine.attention import Context, Scores, attend
from models.engine.layout import laid_out
from models.engine.scripted import compiled

FAMILY = frozenset({"LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM"})
FIXED_ANGLES = frozenset({"default", "linear", "llama3", "yarn"})
MOST_ANGLES = 1 << 23
Joined = tuple[Tensor, Tensor | None]


@dataclass(frozen=True, slots=True)
class Norm:
    weight: Tensor
    eps: float

    @classmethod
    def of(cls, module: Any) -> Norm:
        return cls(module.weight, module.variance_epsilon)

    def __call__(self, hidden: Tensor) -> Tensor:
        return rms_norm(hidden, self.weight.shape, self.weight, self.eps)


@dataclass(frozen=True, slots=True)
class Layer:
    number: int
    before: Norm
    after: Norm
    qkv: Joined
    out: Joined
    gate_up: Joined
    down: Joined
    heads: tuple[int, int]  # of queries, and of queries and keys together
    size: int
    scores: Scores
    norms: tuple[Norm, Norm] | None  # of queries and keys

    @property
    def weights(self) -> list[Tensor]:
        """In the order of `scripted.forward`."""
        own = [self.before.weight, self.after.weight, self.qkv[0], self.out[0], self.gate_up[0], self.down[0]]
        return own + [norm.weight for norm in self.norms or ()]

    def __call__(self, hidden: Tensor, cos: Tensor, sin: Tensor, context: Context) -> Tensor:
        """`hidden` is [T, width], `cos` and `sin` [T, 1, size]."""
        queries, both = self.heads
        found = linear(self.before(hidden), *self.qkv).view(len(hidden), -1, self.size)
        turned = found[:, :both]
        if self.norms is not None:
            turned = torch.cat([self.norms[0](found[:, :queries]), self.norms[1](found[:, queries:both])], dim=1)
        # the halves change places, and the sign of one of them is in `sin`
        turned = torch.addcmul(turned * cos, turned.roll(self.size // 2, dims=-1), sin)
        seen = attend(turned[:, :queries], turned[:, queries:], found[:, both:], self.number, context, self.scores)
        hidden = hidden + linear(seen.reshape(len(hidden), -1), *self.out)
        gate, up = linear(self.after(hidden), *self.gate_up).chunk(2, dim=-1)
        return hidden + linear(silu(gate) * up, *self.down)


class LeanDecoder:
    """Computes what `model` computes for packed tokens; see `lean`."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self._layers = [_layer(number, layer) for number, layer in enumerate(model.model.layers)]
        self._norm = Norm.of(model.model.norm)
        # a copy where it is the embedding too, which is read by rows
        self._head = laid_out(model.lm_head.weight.data), model.lm_head.bias
        half = self._layers[0].size // 2
        self._sign = torch.cat([-torch.ones(half), torch.ones(half)]).to(model.device)
        self._script = compiled() if model.device.type == "cpu" else None
        self._angles = self._all_angles() if self._script is not None else None
        self._windows = list(dict.fromkeys(layer.scores.window for layer in self._layers))
        self._fixed = self._of_all_steps() if self._script is not None else {}

    def __call__(self, context: Context) -> Tensor:
        """The logits of the batch's last tokens."""
        batch, own = context.batch, self._model.model
        if self._script is not None:
            return self._run_script(self._script, context)
        hidden = own.embed_tokens(batch.tokens[0])
        cos, sin = self._turns(batch.positions)
        for layer in self._layers:
            hidden = layer(hidden, cos, sin, context)
        return linear(self._norm(hidden[batch.last]), *self._head)

    def _run_script(self, script: Callable[..., Tensor], context: Context) -> Tensor:
        batch, cache = context.batch, context.cache
        angles, places = self._angles, batch.positions[0]
        if angles is None:
            angles, places = self._turns(batch.positions), torch.arange(batch.positions.shape[1])
        most = max((len(group.pages) for group in batch.groups if group.pages is not None), default=0)
        return script(
            tokens=batch.tokens[0],
            slots=batch.slots,
            last=batch.last,
            places=places,
            cosines=angles[0],
            sines=angles[1],
            keys=cache.keys,
            values=cache.values,
            shapes=[[group.first, group.rows, group.width] for group in batch.groups],
            pages=[group.pages for group in batch.groups],
            masks=[[group.mask_where_needed(window) for group in batch.groups] for window in self._windows],
            scratch=[cache.scratch(0, most), cache.scratch(1, most)],
            **self._fixed,
        )

    def _of_all_steps(self) -> dict[str, Any]:
        first = self._layers[0]
        return {
            "embeddings": self._model.model.embed_tokens.weight,
            "layers": [layer.weights for layer in self._layers],
            "biases": [[layer.qkv[1], layer.out[1], layer.gate_up[1], layer.down[1]] for layer in self._layers],
            "kinds": [self._windows.index(layer.scores.window) for layer in self._layers],
            "heads": [*first.heads, first.size],
            "scale": first.scores.scale,
            "small": torch.tensor(self._norm.eps),
            "eps": self._norm.eps,
            "final": self._norm.weight,
            "head": self._head[0],
            "head_bias": self._head[1],
        }

    def _turns(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Cosines and sines [T, 1, size] of positions [1, T]."""
        cos, sin = self._model.model.rotary_emb(self._norm.weight, positions)
        return cos[0].unsqueeze(1), (sin[0] * self._sign.to(sin.dtype)).unsqueeze(1)

    def _all_angles(self) -> tuple[Tensor, Tensor] | None:
        """Those of every position, where they are always the same and do not take much memory."""
        own, most = self._model.model.rotary_emb, self._model.config.max_position_embeddings
        if own.rope_type not in FIXED_ANGLES or most * self._layers[0].size > MOST_ANGLES:
            return None
        return self._turns(torch.arange(most).unsqueeze(0))


def lean(model: Any) -> LeanDecoder | None:
    """A leaner forward for `model`, where it is built as the family is and its weights are plain."""
    if type(model).__name__ not in FAMILY or getattr(model.config, "hidden_act", None) != "silu":
        return None
    linears = [module for layer in model.model.layers for module in layer.modules() if hasattr(module, "in_features")]
    plain = all(type(module) is nn.Linear and type(module.weight.data) is Tensor for module in linears)
    return LeanDecoder(model) if plain and len(linears) == 7 * len(model.model.layers) else None


def _layer(number: int, layer: Any) -> Layer:
    attention, mlp = layer.self_attn, layer.mlp
    size = attention.head_dim
    queries, keys = attention.q_proj.out_features // size, attention.k_proj.out_features // size
    window = getattr(attention, "sliding_window", getattr(attention.config, "sliding_window", None))
    norms = (Norm.of(attention.q_norm), Norm.of(attention.k_norm)) if hasattr(attention, "q_norm") else None
    return Layer(
        number,
        Norm.of(layer.input_layernorm),
        Norm.of(layer.post_attention_layernorm),
        _join(attention.q_proj, attention.k_proj, attention.v_proj),
        _join(attention.o_proj),
        _join(mlp.gate_proj, mlp.up_proj),
        _join(mlp.down_proj),
        (queries, queries + keys),
        size,
        Scores(attention.scaling, window, None),
        norms,
    )


def _join(*linears: nn.Linear) -> Joined:
    """One product for all, of whose weights theirs are views from now on."""
    weight = laid_out(torch.cat([module.weight.data for module in linears]))
    bias = None if linears[0].bias is None else torch.cat([module.bias.data for module in linears])
    first = 0
    for module in linears:
        span = slice(first, first := first + module.out_features)
        module.weight = nn.Parameter(weight[span], requires_grad=False)
        if bias is not None:
            module.bias = nn.Parameter(bias[span], requires_grad=False)
    return weight, bias
