"""Checkpoints of random weights, small enough to make in a test."""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from models.checkpoints.loading import Checkpoint, GenerationDefaults
from models.checkpoints.transformers_models import AutoConfig, AutoModelForCausalLM

# Behind the line above, which hides from it what takes a second to import.
from transformers import GenerationConfig, PreTrainedTokenizerFast  # isort: skip

TEMPLATE = (
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
SPECIAL = ["<|end|>", "<|system|>", "<|user|>", "<|assistant|>", "<|pad|>"]
CORPUS = ["where is my order 4711", "grüße aus köln 🙂 日本語", "the quick brown fox jumps over the lazy dog"] * 4
DEVICE = os.environ.get("GPU_TEST_DEVICE", "cuda")
"""Of the tests of a GPU, which `make gpu` tries on a CPU."""
SIZES: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 512,
}


@lru_cache
def tokenizer() -> PreTrainedTokenizerFast:
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=320, special_tokens=SPECIAL, initial_alphabet=alphabet, show_progress=False
    )
    backend.train_from_iterator(CORPUS, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        eos_token="<|end|>",
        pad_token="<|pad|>",
        chat_template=TEMPLATE,
        additional_special_tokens=SPECIAL[1:4],
    )


def model(kind: str = "llama", seed: int = 0, **changes: Any) -> Any:
    """A model whose greedy answers vary: random weights are scaled up, or it would repeat one token."""
    torch.manual_seed(seed)
    config = AutoConfig.for_model(
        kind, vocab_size=len(tokenizer()), eos_token_id=0, pad_token_id=4, bos_token_id=None, **(SIZES | changes)
    )
    made = AutoModelForCausalLM.from_config(config, dtype=torch.float32, attn_implementation="eager").eval()
    with torch.no_grad():
        for name, weight in made.named_parameters():
            if weight.dim() > 1:
                weight.normal_(0, 0.15 if "embed" not in name else 1.0)
    return made.requires_grad_(requires_grad=False)


def checkpoint(kind: str = "llama", *, eos: bool = False, seed: int = 0, **changes: Any) -> Checkpoint:
    made = model(kind, seed, **changes)
    ends = frozenset({0}) if eos else frozenset[int]()
    length = made.config.max_position_embeddings
    return Checkpoint(kind, made, tokenizer(), GenerationDefaults(), ends, f"{kind}@tiny", length)


def save(folder: Path, **changes: Any) -> Path:
    made = model(**changes)
    made.generation_config = GenerationConfig(eos_token_id=0, do_sample=True, temperature=0.7, top_p=0.9)
    made.save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    return folder
