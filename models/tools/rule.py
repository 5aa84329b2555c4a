"""What a job says about its tools, as plain data.

It costs next to nothing to write; the grammar follows where constraints are compiled (models/structured), because a
request may bring a megabyte of schemas.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import msgspec

from models.interface.generation import ConstraintError, ConstraintKind, OutputConstraint
from models.tools.format import ToolFormat

_NO_ARGUMENTS: Mapping[str, Any] = MappingProxyType(
    {"type": "object", "properties": {}, "required": [], "additionalProperties": False}
)
_OF_ANY_OBJECT = frozenset({"type", "properties", "required"})
_ANNOTATIONS = frozenset({"$schema", "$id", "$comment", "$defs", "definitions", "title", "description", "examples"}) | {
    *("default", "deprecated", "readOnly", "writeOnly", "strict")
}


@dataclass(frozen=True, slots=True)
class CallableTool:
    name: str
    parameters: Mapping[str, Any]
    is_strict: bool = False

    @property
    def schema(self) -> dict[str, Any]:
        """That of its arguments. Parameters that say nothing of any are an empty list, as OpenAI has it."""
        said = {name for name, value in self.parameters.items() if value is not None and name not in _ANNOTATIONS}
        is_empty = not any(self.parameters.get(name) for name in ("properties", "required"))
        if said <= _OF_ANY_OBJECT and is_empty:
            return {**self.parameters, **_NO_ARGUMENTS}
        return {"type": "object", **self.parameters}


@dataclass(frozen=True, slots=True)
class ToolRule:
    """What `tool_constraint` was given; the rule of an `OutputConstraint` is this as JSON."""

    form: ToolFormat
    tools: tuple[CallableTool, ...]
    is_required: bool
    is_single: bool
    content: OutputConstraint | None


def written(rule: ToolRule) -> OutputConstraint:
    """Raises `ConstraintError` for schemas that are no JSON."""
    try:
        return OutputConstraint(ConstraintKind.TOOLS, _ENCODER.encode(rule).decode())
    except (RecursionError, ValueError, TypeError):
        raise ConstraintError("tools: the schemas cannot be written as JSON") from None


def tool_rule(constraint: OutputConstraint) -> ToolRule:
    return _DECODER.decode(constraint.rule)


_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(ToolRule)
