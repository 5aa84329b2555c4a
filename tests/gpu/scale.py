"""How large everything is that is measured, on a GPU and where the script is only tried."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

LLAMA_1B = {
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "num_hidden_layers": 16,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "vocab_size": 128256,
    "tie_word_embeddings": True,
}
LLAMA_8B = {
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 128256,
}
PACKABLE = {"hidden_size": 128, "intermediate_size": 256, "head_dim": 32}
"""The smallest that the 4-bit kernels of all devices take."""


@dataclass(frozen=True)
class Scale:
    """`rows` answer together behind `prompt` tokens, `new` tokens each; `prefixes` are before chunks of `chunk`."""

    shapes: dict[str, dict[str, Any]]
    rows: tuple[int, ...] = (1, 8, 32, 128)
    prompt: int = 1024
    new: int = 64
    prefixes: tuple[int, ...] = (4096, 16384)
    chunk: int = 512
    vocabulary: int = 128256
    copied: int = 1 << 31
    product: int = 8192
    rounds: int = 10
    answers: int = 24
    budgets: dict[str, float] = field(default_factory=dict)

    @property
    def is_tiny(self) -> bool:
        return "tiny" in self.shapes


FULL = Scale({"1B": LLAMA_1B, "8B": LLAMA_8B})
TINY = Scale(
    {"tiny": PACKABLE, "small": PACKABLE | {"num_hidden_layers": 3}},
    rows=(1, 4),
    prompt=48,
    new=24,
    prefixes=(64, 128),
    chunk=32,
    vocabulary=3000,
    copied=1 << 22,
    product=128,
    rounds=2,
)
SCALES = {"full": FULL, "tiny": TINY}
