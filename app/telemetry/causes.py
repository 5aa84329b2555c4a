"""Causes of dead letters as a bounded set of labels, derived from the error's message."""

from __future__ import annotations

from app.wire.control import Audit
from app.wire.request import Request
from app.wire.tool_records import ToolResultRecord

FIELDS = frozenset(
    {"key", "type", *Request.__struct_fields__, *Audit.__struct_fields__, *ToolResultRecord.__struct_fields__}
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
    field = message.partition(":")[0].partition(".")[0]
    if field in FIELDS:
        return field
    return next((cause for beginning, cause in _KINDS if message.startswith(beginning)), OTHER)
