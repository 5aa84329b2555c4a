"""Tiny checkpoints with chat templates like popular models'; their constructs are in `templates`, in our own words."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path

from tokenizers import AddedToken
from transformers import PreTrainedTokenizerFast

from models.checkpoints.loading import Checkpoint
from tests.unit.models import tiny

_TEMPLATES = Path(__file__).parent / "templates"

SHAPES: Mapping[str, str] = {file.stem: file.read_text(encoding="utf-8") for file in sorted(_TEMPLATES.glob("*.jinja"))}

SPECIAL = ["[TOOL_CALLS]", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_RESULTS]"]
SPECIAL += ["[/TOOL_RESULTS]", "<|tool|>", "<|/tool|>", "<|tool_call|>", "<|/tool_call|>", "<|tools|>"]
SPECIAL += [
    "<｜tool▁calls▁begin｜>",
    "<｜tool▁call▁begin｜>",
    "<｜tool▁sep｜>",
    "<｜tool▁call▁end｜>",
    "<｜tool▁calls▁end｜>",
]
PLAIN = [
    "<think>",
    "</think>",
    "<tool_call>",
    "</tool_call>",
    "<tool_response>",
    "</tool_response>",
    "<tools>",
    "</tools>",
    "<arg_key>",
    "</arg_key>",
    "<arg_value>",
    "</arg_value>",
    "<function_calls>",
    "<minimax:tool_call>",
    "</minimax:tool_call>",
    "<function_results>",
    "</function_calls>",
]
CONTROL = (*SPECIAL, *PLAIN, *tiny.SPECIAL)
OWN_CONTROL = {"deepseek32": ("｜DSML｜",)}
"""Tokens that control one family alone, and are plain text to the others."""
ADDED = ["<td>", "  "]
"""Added tokens of plain text, which texts keep."""


def shaped_checkpoint(template: str, *, has_tokens: bool = True) -> Checkpoint:
    """A tiny checkpoint with this template and the tokens of all of them, or none of its own; its `model` is of no
    use.
    """
    own = [name for names in OWN_CONTROL.values() for name in names]
    backend = type(tiny.tokenizer().backend_tokenizer).from_str(tiny.tokenizer().backend_tokenizer.to_str())
    if has_tokens:
        backend.add_special_tokens([AddedToken(name, normalized=False, special=True) for name in SPECIAL])
        backend.add_tokens([AddedToken(name, normalized=False, special=False) for name in [*PLAIN, *ADDED, *own]])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, eos_token="<|end|>", pad_token="<|pad|>", chat_template=template
    )
    return dataclasses.replace(tiny.checkpoint(), tokenizer=tokenizer, context_length=200_000)
