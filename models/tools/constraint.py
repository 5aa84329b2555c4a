"""The output constraint of an answer that may, or must, call tools: a grammar in llguidance's Lark.

none       no call: the constraint of the answer itself, if it has one
auto       text, or calls; from a call's first token on, only a complete call of one of the tools
required   at least one call
a name     one call of that tool
"""

from __future__ import annotations

import enum
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from models.generation import ConstraintKind, OutputConstraint
from models.structured.grammar import WHITESPACE, ConstraintError, prepared
from models.tools.format import ToolFormat

_TERMINALS = re.compile(r'[{}\[\]]|: |, |"(?:[^"\\]|\\.)*"|[^{}\[\]":,]+|.', re.DOTALL)


@dataclass(frozen=True, slots=True)
class Tool:
    """`parameters` is the JSON schema of its arguments, an object."""

    name: str
    description: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)

    @property
    def described(self) -> dict[str, Any]:
        """As chat templates expect it."""
        function = {"name": self.name, "description": self.description, "parameters": dict(self.parameters)}
        return {"type": "function", "function": function}


class ToolChoice(enum.Enum):
    AUTO = "auto"
    REQUIRED = "required"


def tool_constraint(
    form: ToolFormat,
    tools: Sequence[Tool],
    choice: ToolChoice = ToolChoice.AUTO,
    *,
    is_single: bool = False,
    marker: int | None = None,
    content: OutputConstraint | None = None,
) -> OutputConstraint:
    """The grammar of an answer with these tools.

    is_single: At most one call.
    marker: The trigger's token id, if it is a special token, which text cannot spell.
    content: The constraint of an answer that calls no tool.

    Raises `ConstraintError` if a schema is too large.
    """
    trigger = _text(form.trigger) if marker is None else f"<[{marker}]>"
    first = f"{trigger} {_text(form.opening)} call"
    more = "" if is_single else f" ({_text(form.separator)} call)*"
    end = f" {_text(form.end)}" if form.end else ""
    calls = f"{first}{more}{end}"
    rules = [_call(form, tools), *(_arguments(number, tool) for number, tool in enumerate(tools))]
    if choice is ToolChoice.REQUIRED:
        rules.insert(0, f"start: {calls}")
    elif content is not None:
        rules = [f"start: {calls} | content", *rules, f"content: {_content(content)}"]
    elif not form.leads:
        # An answer is text if it does not begin like a call.
        rules = [f"start: {calls} | TEXT?", *rules, r"TEXT: /[^{](.|\n)*/"]
    elif marker is None:
        lead = f"lead {_text(form.opening)} call{more}{end}"
        rules = [f"start: {lead} | TEXT", *rules, f"lead[lazy]: TEXT {trigger}", r"TEXT: /(.|\n)*/"]
    else:
        rules = [f"start: TEXT? {calls} | TEXT", *rules, r"TEXT: /(.|\n)*/"]
    return OutputConstraint(ConstraintKind.LARK, "\n".join(["%llguidance {}", *rules]))


def _call(form: ToolFormat, tools: Sequence[Tool]) -> str:
    each = (
        f"{_text(json.dumps(tool.name, ensure_ascii=False) + form.middle)} arguments_{number}"
        for number, tool in enumerate(tools)
    )
    return f"call: ({' | '.join(each)}) {_text(form.closing)}"


def _arguments(number: int, tool: Tool) -> str:
    return f"arguments_{number}: {_json({'type': 'object', **tool.parameters})}"


def _content(content: OutputConstraint) -> str:
    match content.kind:
        case ConstraintKind.JSON:
            return _json(json.loads(content.rule))
        case ConstraintKind.CHOICES:
            return " | ".join(map(_text, json.loads(content.rule)))
        case ConstraintKind.REGEX:
            return f"/{content.rule.replace('/', chr(92) + '/')}/"
        case ConstraintKind.GRAMMAR | ConstraintKind.LARK:
            raise ConstraintError("a grammar cannot be combined with tools")


def _json(schema: Mapping[str, Any]) -> str:
    return f"%json {json.dumps({**prepared(schema), 'x-guidance': WHITESPACE})}"


def _text(text: str) -> str:
    """The text as the terminals that JSON is made of.

    llguidance does not go back within a terminal: if a call's beginning were one, an answer that begins with the same
    bracket could not be anything else.
    """
    return " ".join(json.dumps(part, ensure_ascii=False) for part in _TERMINALS.findall(text))
