"""A bigger Llama with random weights: it says nothing, at the price of a model that would.

25 million parameters in bfloat16 behind the demo model's tokenizer and template: about as much work a token as two
small cores can do while a person reads along.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

SHAPE = {
    "hidden_size": 512,
    "intermediate_size": 1408,
    "num_hidden_layers": 8,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 64,
}
BESIDE = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "generation_config.json")


def write(folder: Path, demo: Path) -> Path:
    """A checkpoint in `folder`, with what stands beside the weights in `demo`."""
    import torch  # noqa: PLC0415 - takes seconds
    from transformers import AutoConfig, LlamaForCausalLM  # noqa: PLC0415

    torch.manual_seed(11)
    config: Any = AutoConfig.from_pretrained(demo)
    config.update(SHAPE)
    LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)
    for name in BESIDE:
        shutil.copy(demo / name, folder / name)
    return folder
