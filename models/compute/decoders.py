"""The parts of a decoder from which its fused forward is made, for each family whose class is known to compute so.

Llama, Mistral and the Qwens are built alike. Gemma 2 and 3 scale their embeddings, multiply a norm by one more than
its weight before they round it, and have norms behind attention and the MLP, too; Gemma 3 has a rotary embedding for
layers with a window and another one for those without, and Gemma 2 caps its scores.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from models.compute.forward import Shape, Weights
from models.llama.config import CLASSES, GELU
from models.llama.decoder import Linear
from models.weights.embedding import NarrowEmbedding
from models.weights.layer import JoinedLinear, ServedLinear
from models.weights.matrix import Matrix, column_major

LLAMAS = frozenset({"LlamaDecoder", *CLASSES.values()})
GEMMAS = frozenset({"Gemma2ForCausalLM", "Gemma3ForCausalLM", "GemmaDecoder"})
_PLAIN = (nn.Linear, Linear)
_PROJECTIONS = 7


def is_known(model: Any) -> bool:
    """Whether it is built like a family, and its layers are plain or served."""
    kind = type(model).__name__
    if kind in LLAMAS:
        is_alike = getattr(model.config, "hidden_act", None) == "silu"
    else:
        is_alike = kind in GEMMAS and getattr(model.config, "hidden_activation", None) == GELU
    if not is_alike:
        return False
    linears = [module for layer in model.model.layers for module in layer.modules() if hasattr(module, "in_features")]
    return len(linears) == _PROJECTIONS * len(model.model.layers) and all(map(_is_plain_or_served, linears))


def _is_plain_or_served(module: Any) -> bool:
    if isinstance(module, ServedLinear):
        return isinstance(module.matrix, Matrix)
    return isinstance(module, JoinedLinear) or (type(module) in _PLAIN and type(module.weight.data) is Tensor)


def shape_of(model: Any) -> Shape:
    attention, config = model.model.layers[0].self_attn, model.config
    size = attention.head_dim
    queries, keys = attention.q_proj.out_features // size, attention.k_proj.out_features // size
    heads = queries, queries + keys, size
    if not _is_gemma(model):
        return Shape(heads, attention.scaling, model.model.norm.variance_epsilon)
    embedding: Any = model.get_input_embeddings()
    if isinstance(embedding, NarrowEmbedding):
        embedding = embedding.inner
    return Shape(
        heads,
        attention.scaling,
        model.model.norm.eps,
        embedding_scale=embedding.embed_scale.to(model.dtype).item(),
        is_gelu=True,
        has_wide_norms=True,
        cap=attention.attn_logit_softcapping if type(model).__name__ == "Gemma2ForCausalLM" else None,
        last_cap=config.final_logit_softcapping,
    )


def weights_of(model: Any) -> list[Weights]:
    kinds = angle_kinds(model)
    return [_weights(model, layer, kinds) for layer in model.model.layers]


def final_norm(model: Any) -> Tensor:
    return _norm(model, model.model.norm)


def head_of(model: Any) -> Matrix:
    """A copy if it is also the embedding, which is read by rows."""
    head = model.lm_head
    return _matrix(head) or Matrix([column_major(head.weight.data)], head.bias)


def angle_kinds(model: Any) -> list[str]:
    """The kinds of layers that have rotary embeddings of their own; none if one is for all."""
    of_each = model.model.rotary_emb.rope_type
    return list(of_each) if isinstance(of_each, dict) else []


def turns_of(model: Any, positions: Tensor) -> list[Tensor]:
    """Cosines and sines [T, 1, size] of positions [1, T], for each kind. The halves of the sines have signs."""
    rotary, like = model.model.rotary_emb, model.model.norm.weight
    turns: list[Tensor] = []
    kinds: list[tuple[str, ...]] = [(kind,) for kind in angle_kinds(model)]
    for kind in kinds or [()]:
        cos, sin = (part[0].unsqueeze(1) for part in rotary(like, positions, *kind))
        half = sin.shape[-1] // 2
        turns += [cos, torch.cat([-sin[..., :half], sin[..., half:]], dim=-1)]
    return turns


def _is_gemma(model: Any) -> bool:
    return type(model).__name__ in GEMMAS


def _weights(model: Any, layer: Any, kinds: list[str]) -> Weights:
    attention, mlp = layer.self_attn, layer.mlp
    heads = [attention.q_norm, attention.k_norm] if hasattr(attention, "q_norm") else []
    posts = [layer.post_attention_layernorm, layer.post_feedforward_layernorm] if _is_gemma(model) else []
    after = layer.pre_feedforward_layernorm if _is_gemma(model) else layer.post_attention_layernorm
    return Weights(
        before=_norm(model, layer.input_layernorm),
        after=_norm(model, after),
        qkv=_join(attention.q_proj, attention.k_proj, attention.v_proj),
        out=_join(attention.o_proj),
        gate_up=_join(mlp.gate_proj, mlp.up_proj),
        down=_join(mlp.down_proj),
        norms=tuple(_norm(model, one) for one in heads),
        window=_window(attention),
        posts=tuple(_norm(model, one) for one in posts),
        angles=kinds.index(attention.layer_type) if kinds else 0,
    )


def _norm(model: Any, norm: Any) -> Tensor:
    """What a norm multiplies by."""
    weight: Tensor = norm.weight.data
    return 1.0 + weight.float() if _is_gemma(model) else weight


def _window(attention: Any) -> int | None:
    """Llama ignores sliding windows in its config; the Qwens and Gemmas have one per layer, and Mistral one for all."""
    own = attention.config if type(attention).__name__.startswith("Mistral") else attention
    window: int | None = getattr(own, "sliding_window", None)
    return window


def _join(*linears: Any) -> Matrix:
    """One product for all. Plain weights become views of its weight."""
    if (matrix := _matrix(linears[0])) is not None:
        return matrix
    weight = column_major(torch.cat([module.weight.data for module in linears]))
    bias = None if linears[0].bias is None else torch.cat([module.bias.data for module in linears])
    first = 0
    for module in linears:
        span = slice(first, first := first + module.out_features)
        module.weight = nn.Parameter(weight[span], requires_grad=False)
        if bias is not None:
            module.bias = nn.Parameter(bias[span], requires_grad=False)
    return Matrix([weight], bias)


def _matrix(module: Any) -> Matrix | None:
    """That of a layer in a form of its own."""
    whole = module.shared.whole if isinstance(module, JoinedLinear) else module
    if not isinstance(whole, ServedLinear):
        return None
    assert isinstance(whole.matrix, Matrix)
    return whole.matrix
