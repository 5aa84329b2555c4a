"""Causes of dead letters as a bounded set of labels, derived from the error's message."""

from __future__ import annotations

FIELDS = frozenset(
    {"key", "type", "request_id", "user_id", "conversation_id", "tenant", "model", "prompt", "messages", "metadata"}
    | {
        "max_tokens",
        "temperature",
        "top_p",
        "top_k",
        "min_p",
        "seed",
        "stop",
        "logprobs",
        "top_logprobs",
        "logit_bias",
        "prompt_logprobs",
    }
    | {"deadline_ms", "priority", "response_format", "presence_penalty", "frequency_penalty", "repetition_penalty"}
)
_KINDS = (
    ("not UTF-8", "encoding"),
    ("nested deeper", "depth"),
    ("the record has no value", "no_value"),
    ("not Protobuf", "malformed"),
    ("JSON is malformed", "malformed"),
    ("Input data was truncated", "malformed"),
    ("Object missing required field", "missing_field"),
    ("Expected ", "wrong_type"),
    ("Invalid ", "wrong_value"),
    ("exactly one of prompt and messages", "prompt"),
)
OTHER = "other"


def cause_of(message: str) -> str:
    """The invalid field, the kind of error, or `other`."""
    field = message.partition(":")[0]
    if field in FIELDS:
        return field
    return next((cause for beginning, cause in _KINDS if message.startswith(beginning)), OTHER)
