"""The grammar of an answer with tools, in llguidance's Lark."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from models.generation import ConstraintError, ConstraintKind, OutputConstraint
from models.structured.grammar import WHITESPACE, prepared
from models.tools.format import ToolFormat
from models.tools.rule import CallableTool, ToolRule

_TERMINALS = re.compile(r'[{}\[\]]|: |, |"(?:[^"\\]|\\.)*"|[^{}\[\]":,]+|.', re.DOTALL)


def lark_of_tools(rule: ToolRule) -> str:
    """Raises `ConstraintError`, which names the tool, if a schema is too large."""
    form = rule.form
    trigger = _text(form.trigger) if rule.marker is None else f"<[{rule.marker}]>"
    first = f"{trigger} {_text(form.opening)} call"
    more = "" if rule.is_single else f" ({_text(form.separator)} call)*"
    end = f" {_text(form.end)}" if form.end else ""
    calls = f"{first}{more}{end}"
    rules = [_call(form, rule.tools), *(_arguments(number, tool) for number, tool in enumerate(rule.tools))]
    if rule.is_required:
        rules.insert(0, f"start: {calls}")
    elif rule.content is not None:
        rules = [f"start: {calls} | content", *rules, f"content: {_content(rule.content)}"]
    elif not form.leads:
        # An answer is text if it does not begin like a call.
        rules = [f"start: {calls} | TEXT?", *rules, r"TEXT: /[^{](.|\n)*/"]
    elif rule.marker is None:
        lead = f"lead {_text(form.opening)} call{more}{end}"
        rules = [f"start: {lead} | TEXT", *rules, f"lead[lazy]: TEXT {trigger}", r"TEXT: /(.|\n)*/"]
    else:
        rules = [f"start: TEXT? {calls} | TEXT", *rules, r"TEXT: /(.|\n)*/"]
    return "\n".join(["%llguidance {}", *rules])


def _call(form: ToolFormat, tools: Sequence[CallableTool]) -> str:
    each = (
        f"{_text(json.dumps(tool.name, ensure_ascii=False) + form.middle)} arguments_{number}"
        for number, tool in enumerate(tools)
    )
    return f"call: ({' | '.join(each)}) {_text(form.closing)}"


def _arguments(number: int, tool: CallableTool) -> str:
    try:
        return f"arguments_{number}: {_json(tool.schema)}"
    except ConstraintError as error:
        raise ConstraintError(f"{tool.name}: {error}") from None


def _content(content: OutputConstraint) -> str:
    match content.kind:
        case ConstraintKind.JSON:
            return _json(json.loads(content.rule))
        case ConstraintKind.CHOICES:
            return " | ".join(map(_text, json.loads(content.rule)))
        case ConstraintKind.REGEX:
            return f"/{content.rule.replace('/', chr(92) + '/')}/"
        case _:
            raise ConstraintError("a grammar cannot be combined with tools")


def _json(schema: Mapping[str, Any]) -> str:
    return f"%json {json.dumps({**prepared(schema), 'x-guidance': WHITESPACE})}"


def _text(text: str) -> str:
    """The text as the terminals that JSON is made of.

    llguidance does not go back within a terminal: if a call's beginning were one, an answer that begins with the same
    bracket could not be anything else.
    """
    return " ".join(json.dumps(part, ensure_ascii=False) for part in _TERMINALS.findall(text))
