"""A JSON schema in the keywords that llguidance has, with the same meaning.

What generators write and llguidance does not read as it is:

$ref: To any place of the document, also with characters that a URI has escaped: the place becomes a definition.
propertyNames: Names of a choice become properties; those of a pattern, a length or a format, `patternProperties`.
not: {}: What nothing is, as older generators say it: `false`.
oneOf: Choices of different types, or with different constants in a required property, are those of `anyOf`.
nullable: A choice of nothing but null beside it (OpenAPI 3.0) is null.
minimum, maximum: Those that it does not read, or reads otherwise, are others, or choices (ranges.py).
pattern: In Rust's dialect, without looking around (patterns.py). Where that is not possible, it is left to a format
    that is enforced beside it, and a choice that has it to the other choices.
if, then, else: Left out where they say nothing. Otherwise they are refused by name, as `not` and `dependentRequired`.
null: A keyword without a value, as serializers write one that is not set, is left out.
minLength, maxItems and the like: 10.0 is 10, and no answer is longer than a million (ranges.py).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

from models.structured.patterns import looks_around, patterns
from models.structured.ranges import narrow, split
from models.structured.schema import FORMATS
from models.tools.json_pointer import steps_of, target_of
from models.tools.values import target_of as target_in
from models.tools.values import types_of

MOST_CHOICES = 64
"""Of a `oneOf`: each is compared with each."""
MOST_SPLITS = 64
"""Ranges of numbers that become choices: llguidance's limits count each of them."""
MOST_PLACES = 2000
"""Places that become definitions: each is written out once more."""
_DEEPEST = 16
_NAME_PATTERNS = {
    "uuid": "^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$",
    "date": "^[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])$",
}
_PLAIN_REFERENCE = re.compile(r"#(/(\$defs|definitions)/[\w.-]+)?", re.ASCII)
_ANNOTATIONS = frozenset({"description", "title", "type", "examples", "default", "$comment"})
_SCHEMAS = ("items", "additionalProperties", "contains", "additionalItems", "unevaluatedProperties")
_PARTS = ("allOf", "anyOf", "oneOf")
_LISTS = (*_PARTS, "prefixItems", "items")
_TABLES = ("properties", "patternProperties", "$defs", "definitions")

Schema = Mapping[str, Any]


class TooManyPlacesError(Exception):
    """The schema refers to more places of its document than are written out."""


def translated(schema: Schema) -> dict[str, Any]:
    """Raises `RecursionError` if it is nested too deeply, and `TooManyPlacesError`."""
    return _Translation(schema).schema()


class _Translation:
    def __init__(self, root: Schema) -> None:
        self._root = root
        self._names: dict[tuple[str, ...], str] = {}
        self._places: dict[str, Any] = {}
        self._splits = 0
        self._containers: set[str] = set()  # keys of the document that hold definitions, and are no keywords

    def schema(self) -> dict[str, Any]:
        made = self._keywords(self._root)
        for name in self._containers:
            made.pop(name, None)
        if self._places:
            known = made.get("$defs")
            made["$defs"] = {**(known if isinstance(known, dict) else {}), **self._places}
        return made

    def _any(self, schema: Any) -> Any:
        if not isinstance(schema, dict):
            return schema
        made = self._keywords(schema)
        return False if made.get("not") in ({}, True) else made

    def _keywords(self, schema: Schema) -> dict[str, Any]:
        given = {name: value for name, value in schema.items() if value is not None or name == "const"}
        made = {name: self._value(name, value) for name, value in given.items()}
        if "propertyNames" in made:
            self._name_properties(made)
        if made.get("nullable") is True and made.get("enum") == [None]:
            made.pop("type", None)
        narrow(made)
        if self._splits < MOST_SPLITS:
            self._splits += split(made)
        self._say_pattern(made)
        choices = schema.get("oneOf")
        if isinstance(choices, list) and "anyOf" not in made and self._are_apart(choices):
            made["anyOf"] = made.pop("oneOf")
        if "if" not in made or not {"then", "else"} & made.keys():
            for name in ("if", "then", "else"):
                made.pop(name, None)
        return made

    def _say_pattern(self, made: dict[str, Any]) -> None:
        if isinstance(pattern := made.get("pattern"), str):
            first, *more = patterns(pattern)
            if str(made.get("format")) in FORMATS and (more or looks_around(first)):
                del made["pattern"]
                return
            made["pattern"] = first
            if more:
                made["allOf"] = [*_list_in(made, "allOf"), *({"pattern": one} for one in more)]
        if isinstance(table := made.get("patternProperties"), dict):
            made["patternProperties"] = {_one(patterns(name), name): schema for name, schema in table.items()}
        if isinstance(choices := made.get("anyOf"), list):
            made["anyOf"] = [one for one in choices if not _is_unsaid(one)] or choices

    def _value(self, name: str, value: Any) -> Any:
        if name == "$ref" and isinstance(value, str):
            return self._reference(value)
        if name in _TABLES and isinstance(value, dict):
            return {key: self._any(one) for key, one in value.items()}
        if name in _LISTS and isinstance(value, list):
            return [self._any(one) for one in value]
        return self._any(value) if name in _SCHEMAS else value

    def _reference(self, reference: str) -> str:
        if not reference.startswith("#") or _PLAIN_REFERENCE.fullmatch(reference):
            return reference
        steps = steps_of(reference)
        target = target_of(self._root, steps)
        if not steps or not isinstance(target, dict | bool):
            return reference
        name = self._names.get(steps)
        if name is None:
            if len(self._names) == MOST_PLACES:
                raise TooManyPlacesError
            name = self._names[steps] = self._free_name()
            self._places[name] = self._any(target)
            if steps[0] not in {*_SCHEMAS, *_LISTS, *_TABLES}:
                self._containers.add(steps[0])
        return f"#/$defs/{name}"

    def _free_name(self) -> str:
        taken = self._root.get("$defs")
        number = len(self._names)
        while isinstance(taken, dict) and f"place{number}" in taken:
            number += MOST_PLACES
        return f"place{number}"

    def _are_apart(self, choices: Sequence[Any]) -> bool:
        """Whether no value is of two of them."""
        if len(choices) > MOST_CHOICES:
            return False
        known = [(types_of(one, self._root), self._constants(one)) for one in choices]
        return all(
            not types & others or any(values.isdisjoint(theirs.get(name, values)) for name, values in own.items())
            for (types, own), (others, theirs) in combinations(known, 2)
        )

    def _constants(self, schema: Any) -> dict[str, frozenset[str]]:
        """The required properties of an object that have constants, with those as JSON."""
        parts = list(self._parts(schema, _DEEPEST))
        required = {name for part in parts for name in _list_in(part, "required") if isinstance(name, str)}
        found: dict[str, frozenset[str]] = {}
        for part in parts:
            known = part.get("properties")
            properties = known if isinstance(known, dict) else {}
            for name in required.intersection(properties):
                rule = properties[name]
                values = [rule["const"]] if isinstance(rule, dict) and "const" in rule else _list_in(rule, "enum")
                if values:
                    found[name] = frozenset(json.dumps(one, sort_keys=True) for one in values)
        return found

    def _parts(self, schema: Any, levels: int) -> Iterator[Schema]:
        """The schema, and those that describe the same value."""
        if isinstance(schema, dict) and levels:
            yield schema
            for part in [*_list_in(schema, "allOf"), target_in(schema, self._root)]:
                yield from self._parts(part, levels - 1)

    def _name_properties(self, made: dict[str, Any]) -> None:
        """Say `propertyNames` with other keywords, where it can be."""
        names = made["propertyNames"]
        if isinstance(names, dict) and isinstance(names.get("$ref"), str):
            names = target_of(self._root, steps_of(names["$ref"]))
        if names is True or (isinstance(names, dict) and _is_any_text(names)):
            del made["propertyNames"]
            return
        if not isinstance(names, dict) or "patternProperties" in made:
            return
        more = made.get("additionalProperties", {})
        choices = [names["const"]] if "const" in names else names.get("enum")
        if isinstance(choices, list):
            known = made["properties"] if isinstance(made.get("properties"), dict) else {}
            made["properties"] = {one: known.get(one, more) for one in choices if isinstance(one, str)}
        elif (pattern := _name_pattern(names)) is not None and not made.get("properties"):
            made["patternProperties"] = {pattern: more}
        else:
            return
        made["additionalProperties"] = False
        del made["propertyNames"]


def _list_in(schema: Any, name: str) -> list[Any]:
    found = schema.get(name) if isinstance(schema, dict) else None
    return found if isinstance(found, list) else []


def _one(said: Sequence[str], pattern: str) -> str:
    """As names of properties need it."""
    return said[0] if len(said) == 1 else pattern


def _is_unsaid(schema: Any) -> bool:
    return isinstance(schema, dict) and looks_around(str(schema.get("pattern", "")))


def _is_any_text(names: Schema) -> bool:
    """A format that names cannot be held to is an annotation."""
    rules = names.keys() - _ANNOTATIONS
    is_open = not rules or (rules == {"format"} and str(names["format"]) not in _NAME_PATTERNS)
    return is_open and names.get("type", "string") == "string"


def _name_pattern(names: Schema) -> str | None:
    """The pattern of names that are described by nothing but a pattern, a length or a format."""
    rules = names.keys() - _ANNOTATIONS
    if rules == {"pattern"} or (rules == {"pattern", "format"} and not looks_around(str(names["pattern"]))):
        pattern = str(names["pattern"])
        return _one(patterns(pattern), pattern)
    if rules == {"format"}:
        return _NAME_PATTERNS[names["format"]]
    if rules and rules <= {"minLength", "maxLength"}:
        return rf"^[\s\S]{{{names.get('minLength', 0)},{names.get('maxLength', '')}}}$"
    return None
