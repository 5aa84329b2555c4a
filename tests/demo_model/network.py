"""The untrained network: a small Llama that already looks back where copying begins.

To copy a name that it has never seen, a model finds where the last token stood before and says what came next there.
For that, one head must first tell every token what stands before it. Left to chance, training takes most of its time
to find such a head; so two heads of the first layer begin with biases that, turned by the rotary embedding, look one
and two tokens back.
"""

from __future__ import annotations

import torch
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from tests.demo_model import attention
from tests.demo_model.tokenizer import CONTEXT

_SHARPNESS = 4.0
_FREQUENCIES = 6  # the fastest ones, which tell neighbours apart


def untrained(words: PreTrainedTokenizerFast) -> LlamaForCausalLM:
    attention.register()
    config = LlamaConfig(
        vocab_size=len(words),
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        attention_bias=True,
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=True,
        pad_token_id=words.pad_token_id,
        bos_token_id=None,
        eos_token_id=words.eos_token_id,
        attn_implementation=attention.NAME,
    )
    model = LlamaForCausalLM(config)
    for head, distance in enumerate((1, 2)):
        _look_back(model, head, distance)
    return model


@torch.no_grad()
def _look_back(model: LlamaForCausalLM, head: int, distance: int) -> None:
    """Make `head` of the first layer, which shares the first keys, attend `distance` tokens back."""
    width: int = model.config.head_dim
    chosen = slice(head * width, (head + 1) * width)
    first = model.model.layers[0].self_attn
    turn = model.model.rotary_emb.inv_freq[:_FREQUENCIES] * distance
    query = torch.zeros(2, width // 2)  # the rotary embedding turns (x, y), kept in the two halves
    query[0, :_FREQUENCIES], query[1, :_FREQUENCIES] = turn.cos(), -turn.sin()
    first.q_proj.bias[chosen] = _SHARPNESS * query.flatten()
    first.k_proj.bias[:_FREQUENCIES] = _SHARPNESS
