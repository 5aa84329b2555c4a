"""What a job says about its tools, as plain data: the output constraint of an answer that may, or must, call tools.

none       no call: the constraint of the answer itself, if it has one
auto       text, or calls; from a call's first token on, only a complete call of one of the tools
required   at least one call
a name     one call of that tool

It costs next to nothing to write; the grammar follows where constraints are compiled (models/structured), because a
request may bring a megabyte of schemas.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import msgspec

from models.interface.generation import ConstraintError, ConstraintKind, OutputConstraint
from models.tools.format import ToolFormat
from models.tools.tool import ModelTool

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


class ToolChoice(enum.Enum):
    AUTO = "auto"
    REQUIRED = "required"


def tool_constraint(
    form: ToolFormat,
    tools: Sequence[ModelTool],
    choice: ToolChoice = ToolChoice.AUTO,
    *,
    is_single: bool = False,
    marker: int | None = None,
    content: OutputConstraint | None = None,
) -> OutputConstraint:
    """The constraint of an answer with these tools.

    is_single: At most one call.
    marker: The trigger's token id, if it is a special token that the form does not know of.
    content: The constraint of an answer that calls no tool.

    Whether the schemas can be followed shows when it is compiled.
    """
    if marker is not None and (form.trigger, marker) not in form.specials:
        form = dataclasses.replace(form, specials=((form.trigger, marker), *form.specials))
    callable_tools = tuple(CallableTool(tool.name, tool.parameters, tool.is_strict) for tool in tools)
    is_required = choice is ToolChoice.REQUIRED
    return written(ToolRule(form, callable_tools, is_required, is_single, content))
