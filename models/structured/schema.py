"""JSON schemas as people mean them: objects with the properties that they name, and no others.

OpenAI's strict mode and vLLM treat a schema this way. Without it, a small model invents keys until its answer is cut.

JSON Schema closes an object by `additionalProperties: false`, which sees only the `properties` beside it. An object
that is joined from parts (`allOf`, `anyOf`, `$ref` beside other keywords) is therefore closed as a whole: its parts
stay open, and the names of all of them stand in the joined object, those that it requires and does not describe, too.
A definition that is used both as a part and by
itself stays open, and is closed where it is used by itself.

Left out, since a grammar cannot express them: `uniqueItems`, which vLLM does not enforce either, and formats that
llguidance does not know, which JSON Schema calls annotations.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from models.tools.json_pointer import steps_of, target_of

FORMATS = frozenset(
    {"date", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "time", "unknown", "uri", "uuid"}
)
"""Those that llguidance enforces."""

_PARTS = ("allOf", "anyOf", "oneOf")
"""Keywords whose schemas describe the same value."""
_CHOICES = ("anyOf", "oneOf")
_SCHEMAS = ("items", "additionalProperties", "contains", "propertyNames", "additionalItems")
_TABLES = ("properties", "patternProperties")
_DEFINITIONS = ("$defs", "definitions")
_OPEN = ("additionalProperties", "patternProperties")
_NEUTRAL = frozenset(
    {"$comment", "default", "deprecated", "description", "examples", "example", "title", "$defs", "definitions"}
)
"""Keywords that do not restrict a value: a `$ref` beside them stands alone."""

MOST_NAMES = 20_000
"""Names that are added to joined objects: each object that refers to a definition gets all of its names."""

Schema = Mapping[str, Any]


class TooManyNamesError(Exception):
    """The schema is small, and what it says is not."""


def closed(schema: Schema) -> dict[str, Any]:
    """The schema with every object closed that leaves open whether properties may follow those that it names.

    Raises `RecursionError` if it is nested too deeply, and `TooManyNamesError`.
    """
    return _Closing(schema).schema()


class _Closing:
    def __init__(self, root: Schema) -> None:
        self._root = root
        self._added = 0
        self._joined: set[str] = set()
        """Definitions that are a part of an object somewhere."""
        waiting = list(_parts_of_joined(root))
        while waiting:
            reference = waiting.pop().get("$ref")
            if isinstance(reference, str) and reference not in self._joined:
                self._joined.add(reference)
                if (target := self._target(reference)) is not None:
                    waiting += [target, *_parts(target)]

    def schema(self) -> dict[str, Any]:
        return self._part(self._root) if "#" in self._joined else self._whole(self._root)

    def _whole(self, schema: Schema) -> dict[str, Any]:
        """A schema that describes a value by itself."""
        if not _is_joined(schema):
            made = self._inner(schema, as_part=False)
            reference = schema.get("$ref")
            if isinstance(reference, str) and reference not in self._joined:
                return made  # its definition is closed
            if "$ref" not in schema and not isinstance(schema.get("properties"), dict):
                return made
        else:
            made = self._inner(schema, as_part=True)
        names = self._names(schema, set())
        is_closed = made.pop("unevaluatedProperties", None) is False
        own = made.get("properties", {})
        if isinstance(own, dict) and names is not None and (names or is_closed or "properties" in schema):
            names |= self._names(schema, set(), "required") or {}
            more: dict[str, Any] = {name: {} for name in names if name not in own}
            made["properties"] = own | more
            made["additionalProperties"] = False
        return made

    def _part(self, schema: Schema) -> dict[str, Any]:
        """A schema that others are joined with: it stays open."""
        made = self._inner(schema, as_part=True)
        made.pop("unevaluatedProperties", None)
        return made

    def _inner(self, schema: Schema, *, as_part: bool) -> dict[str, Any]:
        """The schema with its inner ones closed."""
        made: dict[str, Any] = {}
        for name, value in schema.items():
            if name == "uniqueItems" or (name == "format" and str(value) not in FORMATS):
                continue
            if name in _PARTS and isinstance(value, list):
                inside = self._part if as_part or name == "allOf" else self._whole
                made[name] = [inside(one) if isinstance(one, dict) else one for one in value]
            elif name in _DEFINITIONS and isinstance(value, dict):
                made[name] = {key: self._definition(f"#/{name}/{_escaped(key)}", one) for key, one in value.items()}
            elif name in _SCHEMAS and isinstance(value, dict):
                made[name] = self._whole(value)
            elif name in ("prefixItems", "items") and isinstance(value, list):
                made[name] = [self._whole(one) if isinstance(one, dict) else one for one in value]
            elif name in _TABLES and isinstance(value, dict):
                made[name] = {key: self._whole(one) if isinstance(one, dict) else one for key, one in value.items()}
            else:
                made[name] = value
        return made

    def _definition(self, reference: str, schema: Any) -> Any:
        if not isinstance(schema, dict):
            return schema
        return self._part(schema) if reference in self._joined else self._whole(schema)

    def _names(self, schema: Schema, passed: set[str], keyword: str = "properties") -> dict[str, None] | None:
        """The properties that the schema and its parts name by the keyword, in their order; None if one of them allows
        any.
        """
        if any(name in schema for name in _OPEN):
            return None
        found = schema.get(keyword)
        names = {name: None for name in found if isinstance(name, str)} if isinstance(found, dict | list) else {}
        self._count(len(names))
        for part in self._resolved_parts(schema, passed):
            if part is None or (more := self._names(part, passed, keyword)) is None:
                return None
            names |= more
        return names

    def _count(self, names: int) -> None:
        """Names are counted wherever they are collected: a chain of definitions is collected once for each of them."""
        self._added += names
        if self._added > MOST_NAMES:
            raise TooManyNamesError

    def _resolved_parts(self, schema: Schema, passed: set[str]) -> Iterator[Schema | None]:
        yield from _parts(schema)
        reference = schema.get("$ref")
        if isinstance(reference, str) and reference not in passed:
            passed.add(reference)
            yield self._target(reference)

    def _target(self, reference: str) -> Schema | None:
        """The schema that a reference within this document names."""
        if not reference.startswith("#"):
            return None
        target = target_of(self._root, steps_of(reference))
        return target if isinstance(target, dict) else None


def _is_joined(schema: Schema) -> bool:
    """Whether the value is described by several schemas at once. A choice alone is each of its schemas by itself."""
    rules = {name for name in schema if name not in _NEUTRAL}
    if "$ref" in rules:
        return len(rules) > 1
    return "allOf" in rules or (not rules.isdisjoint(_CHOICES) and "properties" in rules) or len(rules & {*_PARTS}) > 1


def _parts(schema: Schema) -> Iterator[Schema]:
    for name in _PARTS:
        parts = schema.get(name)
        if isinstance(parts, list):
            yield from (part for part in parts if isinstance(part, dict))


def _parts_of_joined(schema: Any, *, is_part: bool = False) -> Iterator[Schema]:
    """Every schema of the document that others are joined with."""
    if isinstance(schema, list):
        for one in schema:
            yield from _parts_of_joined(one)
    elif isinstance(schema, dict):
        is_joined = is_part or _is_joined(schema)
        if is_joined:
            yield schema
        for name, value in schema.items():
            if name in _PARTS and isinstance(value, list):
                for one in value:
                    yield from _parts_of_joined(one, is_part=is_joined)
            elif isinstance(value, dict | list):
                yield from _parts_of_joined(value)


def _escaped(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")
