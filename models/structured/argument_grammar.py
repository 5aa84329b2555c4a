"""The rules of the arguments of one tool, in llguidance's Lark, by how the form writes them.

JSON: The schema of the arguments.
Tags: Each property is a rule of its own, in the order of the schema. A value that must be a string is a text of its
    length, pattern or choice; `format` is not enforced. One that may be a string is any text; where its schema says
    more, a strict tool is refused. Any other is JSON.
Python: Each property is a keyword argument whose value is JSON, or `True`, `False` and `None`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from models.interface.generation import ConstraintError
from models.structured.grammar import TOO_LARGE, WHITESPACE, prepared
from models.structured.patterns import choices_of, exactly, terminal
from models.structured.translated import translated
from models.tools.format import ArgumentStyle, ToolFormat
from models.tools.rule import CallableTool
from models.tools.values import ALL_TYPES, STRING, plain_text_of, target_of, types_of

Literal = Callable[[str], str]
"""The terminals of a text of the form, with its special tokens."""

MOST_CHARACTERS = 1 << 22
"""Of one tool's rules: each property repeats the definitions that it refers to."""
_KNOWN = frozenset(
    {"type", "properties", "required", "additionalProperties", "$defs", "definitions", "description", "title"}
) | {"$schema", "$id", "$comment", "default", "examples", "strict"}
_ANY_OBJECT = {"type": "object"}
_ANYTHING = r"(.|\n)*"
_ANY_TEXT = f"/{_ANYTHING}/"
_EMPTY, _NONE = '""', '"None"'
_NAMES_TYPES = frozenset({"type", "anyOf", "oneOf", "description", "title", "default", "examples"})
_PLAIN_BOOLEAN = frozenset({"type", "description", "title", "default", "examples"})
_DEEPEST = 16


def argument_rules(number: int, tool: CallableTool, form: ToolFormat, literal: Literal, *, is_open: bool) -> list[str]:
    """The rule `arguments_NUMBER` of the tool, and those that it refers to.

    is_open: Any arguments, because the schema cannot be followed.

    Raises `ConstraintError` if the schema is too large, or cannot be followed in this form.
    """
    name = f"arguments_{number}"
    if form.arguments is ArgumentStyle.JSON:
        return [f"{name}: {json_rule(_ANY_OBJECT if is_open else tool.schema)}"]
    prepared(tool.schema)  # what is too large as a whole
    keyed = None if is_open else _keyed(translated(tool.schema))
    style: _Tagged | _Python = _Python(name, literal)
    if form.arguments is ArgumentStyle.TAGGED:
        style = _Tagged(name, form, literal, is_strict=tool.is_strict)
    rules: list[str] = []
    size = 0
    for rule in style.any() if keyed is None else style.rules(keyed):
        size += len(rule)
        if size > MOST_CHARACTERS:
            raise ConstraintError(TOO_LARGE)
        rules.append(rule)
    return rules


def json_rule(schema: Any) -> str:
    return f"%json {json.dumps({**prepared(schema), 'x-guidance': WHITESPACE})}"


@dataclass(frozen=True, slots=True)
class _Property:
    key: str
    schema: dict[str, Any]
    types: frozenset[str]
    is_required: bool


def _keyed(schema: Mapping[str, Any]) -> Sequence[_Property] | None:
    """The properties of an object; None for any object."""
    unknown = sorted(set(schema) - _KNOWN)
    if unknown:
        raise ConstraintError(f"{unknown[0]}: it cannot be followed in this form of calls")
    required = schema.get("required", [])
    is_closed = schema.get("additionalProperties") is False
    properties = schema.get("properties", {} if is_closed else None)
    if properties is None and not required:
        return None
    if not isinstance(properties, Mapping) or not isinstance(required, list) or not properties.keys() >= set(required):
        raise ConstraintError("properties: they cannot be followed in this form of calls")
    if schema.get("additionalProperties", False) is not False:
        raise ConstraintError("additionalProperties: they cannot be followed in this form of calls")
    needed = set(required)
    return [
        _Property(key, _with_definitions(one, schema), types_of(one, schema), key in needed)
        for key, one in properties.items()
    ]


def _with_definitions(schema: Any, root: Mapping[str, Any]) -> dict[str, Any]:
    if not isinstance(schema, Mapping):
        return {} if schema is True else {"not": {}}
    if not _references(schema):
        return dict(schema)
    whole = {**{name: root[name] for name in ("$defs", "definitions") if name in root}, **schema}
    if any(not reference.startswith(("#/$defs/", "#/definitions/")) for reference in _references(whole)):
        raise ConstraintError("$ref: it cannot be followed in this form of calls")
    return whole


def _references(schema: Mapping[str, Any]) -> list[str]:
    return re.findall(r'"\$ref": "([^"]*)', json.dumps(schema))


class _Tagged:
    def __init__(self, name: str, form: ToolFormat, literal: Literal, *, is_strict: bool) -> None:
        self._name = name
        self._form = form
        self._is_strict = is_strict
        self._literal = literal
        self._end = literal(form.value_end)

    def rules(self, properties: Sequence[_Property]) -> Iterator[str]:
        names = [f"{self._name}_{number}" for number in range(len(properties))]
        parts = [name if one.is_required else f"{name}?" for name, one in zip(names, properties, strict=True)]
        yield f"{self._name}: {' '.join(parts) or _EMPTY}"
        for name, one in zip(names, properties, strict=True):
            if "\n" in one.key or self._form.value[0] in one.key:
                raise ConstraintError("properties: a name cannot be written in this form of calls")
            yield from self._property(name, one)

    def any(self) -> list[str]:
        name = self._name
        first = re.escape(self._form.value[0])
        key = f"{self._literal(self._form.key)} {name.upper()}_KEY {self._literal(self._form.value)}"
        no_text = ""
        if self._form.other_value:
            rule = json_rule({"type": sorted(ALL_TYPES - STRING)})
            begun = f"{self._literal(self._form.key)} {name.upper()}_KEY"
            no_text = f" | {begun} {self._literal(self._form.other_value)} {rule} {self._end}"
        return [
            f"{name}: ({key} {name}_value{no_text})*",
            rf"{name.upper()}_KEY: /[^{first}\n]+/",
            *self._text(f"{name}_value", _ANY_TEXT, may_be_empty=True),
        ]

    def _property(self, name: str, one: _Property) -> list[str]:
        key, other_key = (
            self._literal(f"{self._form.key}{one.key}{self._form.value_mark(is_text=is_text)}")
            for is_text in (True, False)
        )
        if "string" not in one.types:
            return [f"{name}: {other_key} {json_rule(one.schema)} {self._end}"]
        text, may_be_empty = _ANY_TEXT, True
        if one.types == STRING or "enum" in one.schema:
            is_text = one.types == STRING or bool(self._form.other_value)
            text, may_be_empty = _text_of(one.schema, one.schema, _DEEPEST, is_text=is_text)
        elif self._is_strict and not _is_any(one.schema):
            raise ConstraintError(f"{one.key}: text or not, it cannot be followed in this form of calls")
        values = self._text(f"{name}_value", text, may_be_empty=may_be_empty)
        if self._form.other_value and (others := one.types - STRING):
            no_text = json_rule({**one.schema, "type": sorted(others)})
            return [f"{name}: {key} {name}_value | {other_key} {no_text} {self._end}", *values]
        return [f"{name}: {key} {name}_value", *values]

    def _text(self, name: str, text: str, *, may_be_empty: bool) -> list[str]:
        """A text up to the end of the value, its first one."""
        terminal = f"{name.upper()}: {text}"
        if self._end.startswith("<["):  # a special token, which no text can contain
            return [f"{name}: {name.upper()}{'?' if may_be_empty else ''} {self._end}", terminal]
        return [f"{name}[lazy]: {name.upper()} {self._end}", terminal]


class _Python:
    def __init__(self, name: str, literal: Literal) -> None:
        self._name = name
        self._literal = literal

    def rules(self, properties: Sequence[_Property]) -> Iterator[str]:
        """Optional arguments may be left out, the first ones, too: `first` begins without a comma, `more` with one."""
        first, more = f"{self._name}_first_", f"{self._name}_more_"
        yield f"{self._name}: {first}0"
        for number, one in enumerate(properties):
            if not one.key.isidentifier():
                raise ConstraintError("properties: a name cannot be written in this form of calls")
            name, following = f"{self._name}_{number}", number + 1
            left_out = ("", "") if one.is_required else (f" | {first}{following}", f" | {more}{following}")
            yield f"{name}: {self._literal(one.key + '=')} ({self._value(one)})"
            yield f"{first}{number}: {name} {more}{following}{left_out[0]}"
            yield f'{more}{number}: ", " {name} {more}{following}{left_out[1]}'
        yield from (f"{each}{len(properties)}: {_EMPTY}" for each in (first, more))

    def any(self) -> list[str]:
        name = self._name
        key, value = f"{name.upper()}_KEY", f"{name}_value"
        text = f"{name}_text"
        items, fields = f'({value} (", " {value})*)?', f'({text} ": " {value} (", " {text} ": " {value})*)?'
        return [
            f'{name}: ({key} "=" {value} (", " {key} "=" {value})*)?',
            rf"{key}: /[A-Za-z_][A-Za-z0-9_]*/",
            f'{value}: {text} | {name}_number | "True" | "False" | "None" | "[" {items} "]" | "{{" {fields} "}}"',
            f"{name}_number: {json_rule({'type': 'number'})}",
            f"{text}: {json_rule({'type': 'string'})}",
        ]

    def _value(self, one: _Property) -> str:
        if one.types == {"boolean"} and one.schema.keys() <= _PLAIN_BOOLEAN:
            return '"True" | "False"'
        has_none = "null" in one.types and one.types != {"null"}
        return f"{json_rule(one.schema)} | {_NONE}" if has_none else json_rule(one.schema)


def _text_of(schema: Any, root: Mapping[str, Any], levels: int, *, is_text: bool) -> tuple[str, bool]:
    """The terminal of the strings of a schema that allows nothing else, and whether the empty one is among them.

    is_text: What is written is a string; otherwise other values of a choice are written in its place.
    """
    if not isinstance(schema, Mapping) or not levels:
        return _ANY_TEXT, True
    parts = [*_limits(schema, is_text=is_text)]
    for name, joint in (("allOf", " & "), ("anyOf", " | "), ("oneOf", " | ")):
        if isinstance(inner := schema.get(name), list) and inner:
            texts = [_text_of(one, root, levels - 1, is_text=is_text) for one in inner if types_of(one, root) & STRING]
            join = all if name == "allOf" else any
            parts.append((f"({joint.join(text for text, _ in texts)})", join(is_empty for _, is_empty in texts)))
    if (target := target_of(schema, root)) is not None:
        parts.append(_text_of(target, root, levels - 1, is_text=is_text))
    if not parts:
        return _ANY_TEXT, True
    return " & ".join(text for text, _ in parts), all(is_empty for _, is_empty in parts)


def _is_any(schema: Any) -> bool:
    """Whether the schema says of its types nothing more."""
    if not isinstance(schema, Mapping):
        return schema is True
    inner = [one for name in ("anyOf", "oneOf") for one in schema.get(name, ())]
    return schema.keys() <= _NAMES_TYPES and all(map(_is_any, inner))


def _limits(schema: Mapping[str, Any], *, is_text: bool) -> Iterator[tuple[str, bool]]:
    choices = [schema["const"]] if "const" in schema else schema.get("enum")
    if isinstance(choices, list):
        texts = [plain_text_of(one) for one in choices if isinstance(one, str) or not is_text]
        yield f"({' | '.join(terminal(exactly(one)) for one in texts)})", "" in texts
    if isinstance(pattern := schema.get("pattern"), str):
        yield f"({' | '.join(terminal(_anywhere(one)) for one in choices_of(pattern))})", False
    least, most = schema.get("minLength", 0), schema.get("maxLength", "")
    if least or most != "":
        yield rf"/(.|\n){{{least},{most}}}/", not least


def _anywhere(pattern: str) -> str:
    """The pattern of a schema, which may match any part of a text, as one of whole texts."""
    begin = "" if pattern.startswith("^") else _ANYTHING
    has_end = pattern.endswith("$") and not pattern.endswith(r"\$")
    middle = pattern.removeprefix("^")
    return f"{begin}({middle.removesuffix('$')})" if has_end else f"{begin}({middle}){_ANYTHING}"
