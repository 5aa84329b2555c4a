"""Conditions between the properties of an object as choices: llguidance has no `not`, `if` and `dependentRequired`.

A property that must not be there has the schema `false`. What is not the case is said by what is the case then: a
required property is absent, or a property with a known list of values has another one. A condition that cannot be said
so keeps its keyword, and is refused by name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice, product
from typing import Any

from models.structured.complement import unlike
from models.tools.values import ALL_TYPES, types_of

MOST_CHOICES = 16
"""Of one condition, and of all of an object together: each choice of one stands beside each of the others."""
_ANNOTATIONS = frozenset({"title", "description", "$comment", "examples", "default"})
_OBJECT = {"type": "object"}  # any other value has all its required properties
_NONE: dict[str, Any] = {"enum": []}
_DEPENDENT = ("dependentRequired", "dependentSchemas", "dependencies")
CONDITIONS = frozenset({*_DEPENDENT, "not", "if", "then", "else"})

Schema = Mapping[str, Any]
Choices = list[dict[str, Any]]


def with_choices(
    made: dict[str, Any], within: Schema, resolved: Callable[[Any], Any], *, is_one: bool
) -> dict[str, Any]:
    """The schema `made` of `within` with its conditions as choices in `allOf`.

    resolved: The part of a schema of `within`, of what it refers to too, that lists its values, if there is one.
    is_one: The choices of its `oneOf` are not apart, so that each has to exclude the others.
    """
    rest = {name: value for name, value in made.items() if name not in CONDITIONS}
    conditions = [*_dependent(made), _if(made, within, resolved), _not(made, within, resolved)]
    if is_one:
        del rest["oneOf"]
        conditions.append(_one_of(made, within, resolved))
    found: list[Choices] = []
    together = 1
    for choices in conditions:
        if choices is None:
            return made
        together *= max(1, len(choices))
        if choices and choices != [{}]:
            found.append(choices)
    if together > MOST_CHOICES or not found:
        return made if found else rest
    parts = [choices[0] if len(choices) == 1 else {"anyOf": choices} for choices in found]
    known = rest.get("allOf", [])
    return {**rest, "allOf": [*known, *parts]} if isinstance(known, list) else made


def _dependent(made: Schema) -> Iterator[Choices | None]:
    for name in _DEPENDENT:
        rules = made.get(name, {})
        if not isinstance(rules, dict):
            yield None
            continue
        for key, rule in rules.items():
            needed = {"required": rule} if isinstance(rule, list) else rule
            yield [_without(key), needed] if isinstance(needed, dict) else None


def _if(made: Schema, within: Schema, resolved: Callable[[Any], Any]) -> Choices | None:
    """Without `if`, `then` and `else` say nothing, and an `if` without them neither."""
    if "if" not in made or not {"then", "else"} & made.keys():
        return []
    condition, then, other = made["if"], made.get("then", {}), made.get("else", {})
    if not all(isinstance(one, dict) for one in (condition, then, other)):
        return None
    negated = _negated(within["if"], within, resolved)
    return None if negated is None else [_all(condition, then), *(_all(one, other) for one in negated)]


def _not(made: Schema, within: Schema, resolved: Callable[[Any], Any]) -> Choices | None:
    return _negated(made["not"], within, resolved) or None if "not" in made else []


def _one_of(made: Schema, within: Schema, resolved: Callable[[Any], Any]) -> Choices | None:
    choices = made["oneOf"]
    if len(choices) > MOST_CHOICES:
        return None
    negated = [_negated(one, within, resolved) for one in within["oneOf"]]
    found: Choices = []
    for number, one in enumerate(choices):
        others = [other for at, other in enumerate(negated) if at != number]
        if any(other is None for other in others):
            return None
        for combination in product(*(other or () for other in others)):
            found.append(_all(one, *combination))
            if len(found) > MOST_CHOICES:
                return None
    return found or None


def _negated(schema: Any, within: Schema, resolved: Callable[[Any], Any]) -> Choices | None:
    """Schemas of which a value of `within` has one if it has not this one; None if they cannot be said."""
    if not isinstance(schema, dict):
        return None
    rules = schema.keys() - _ANNOTATIONS
    if within.get("type") == schema.get("type"):
        rules -= {"type"}
    if rules == {"not"}:
        return [schema["not"]] if isinstance(schema["not"], dict) else None
    if rules == {"anyOf"}:
        return _none_of(schema["anyOf"], within, resolved)
    if rules and rules <= {"required", "properties"}:
        return _other_objects(schema, within, resolved)
    other = _other(within, schema)
    return None if other is None or "anyOf" in rules else [other]


def _other_objects(schema: Schema, within: Schema, resolved: Callable[[Any], Any]) -> Choices | None:
    required, rules, known = schema.get("required", []), schema.get("properties", {}), within.get("properties", {})
    if not (isinstance(required, list) and isinstance(rules, dict) and isinstance(known, dict)):
        return None
    found = [{**_OBJECT, **_without(name)} for name in required if isinstance(name, str)]
    for name, rule in rules.items():
        other = _other(resolved(known.get(name)), rule)
        if other is None:
            return None
        found += [{**_OBJECT, "properties": {name: other}, "required": [name]}] if other != _NONE else []
    return found


def _none_of(choices: Any, within: Schema, resolved: Callable[[Any], Any]) -> Choices | None:
    negated = [_negated(one, within, resolved) for one in choices] if isinstance(choices, list) else [None]
    if any(one is None for one in negated):
        return None
    found = [_all(*all_of) for all_of in islice(product(*(one or () for one in negated)), MOST_CHOICES + 1)]
    return found if len(found) <= MOST_CHOICES else None


def _values(schema: Any) -> Sequence[Any] | None:
    """All values of the schema, if it lists them."""
    if not isinstance(schema, dict):
        return None
    if "const" in schema:
        return [schema["const"]]
    listed = schema.get("enum")
    if isinstance(listed, list):
        return listed
    return [False, True] if schema.get("type") == "boolean" else None


def _other(within: Any, rule: Any) -> dict[str, Any] | None:
    """The schema of the values of `within` that are not of `rule`; None if it cannot be said."""
    if not isinstance(within, dict) or not isinstance(rule, dict):
        return None
    rules = rule.keys() - _ANNOTATIONS
    if rules == {"type"}:
        types = ALL_TYPES - types_of(rule, rule)
        is_known = ("number" in types) == ("integer" in types)  # a number may be a whole one
        return {"type": sorted(types)} if is_known else None
    is_text = within.get("type") == "string"
    if is_text and rules - {"type"} == {"pattern"}:
        return _matching(unlike(str(rule["pattern"])))
    excluded = _values(rule) if rules <= {"const", "enum", "type"} else None
    return None if excluded is None else _other_values(_values(within), excluded, is_text=is_text)


def _other_values(known: Sequence[Any] | None, excluded: Sequence[Any], *, is_text: bool) -> dict[str, Any] | None:
    if known is not None:
        written = {json.dumps(one, sort_keys=True) for one in excluded}
        left = [one for one in known if json.dumps(one, sort_keys=True) not in written]
        return {"enum": left} if left else _NONE
    texts = "|".join(re.escape(one) for one in excluded if isinstance(one, str))
    return _matching(unlike(f"^(?:{texts})$")) if is_text else None


def _matching(pattern: str | None) -> dict[str, Any] | None:
    return None if pattern is None else {"type": "string", "pattern": pattern}


def _without(name: str) -> dict[str, Any]:
    return {"properties": {name: False}}


def _all(*schemas: dict[str, Any]) -> dict[str, Any]:
    parts = [one for one in schemas if one]
    return parts[0] if len(parts) == 1 else {"allOf": parts} if parts else {}
