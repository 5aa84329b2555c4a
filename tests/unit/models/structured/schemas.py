"""JSON schemas by chance, of the keywords that people use for structured answers."""

from __future__ import annotations

import random
from typing import Any

NAMES = ("id", "name", "größe", "tags", "a b", 'quo"te', "back\\slash", "status", "x", "äöü", "", "items")
WORDS = ("open", "closed", "in transit", "é", 'say "hi"', "tab\there", "😀", "", "no", "null")
PATTERNS = ("^[A-Z]{2}-[0-9]{1,4}$", "^(yes|no|maybe)$", "^\\d{3}$", "[a-c]+x?", "^[äöü ]{1,3}$")
FORMATS = ("date", "time", "date-time", "uuid", "ipv4", "email")


def random_schema(seed: int) -> dict[str, Any]:
    """An object's schema, the same for the same `seed`."""
    chance = random.Random(seed)
    schema = _object(chance, 0)
    if chance.random() < 0.3:
        schema["$defs"] = {"part": _any(chance, 2)}
        schema["properties"]["ref"] = {"$ref": "#/$defs/part"}
        if chance.random() < 0.5:
            schema["required"] = [*schema.get("required", ()), "ref"]
    if chance.random() < 0.2:  # a tree: a schema that names itself
        schema["properties"]["child"] = {"anyOf": [{"type": "null"}, {"$ref": "#"}]}
    return schema


def _any(chance: random.Random, depth: int) -> dict[str, Any]:
    kinds = [_string, _string, _integer, _number, _boolean, _null, _enum, _const, _several]
    if depth < 3:
        kinds += [_object, _object, _array, _array, _tuple, _union, _all_of]
    return chance.choice(kinds)(chance, depth)


def _object(chance: random.Random, depth: int) -> dict[str, Any]:
    names = chance.sample(NAMES, chance.randrange(0 if depth else 1, 5))
    schema: dict[str, Any] = {"type": "object", "properties": {name: _any(chance, depth + 1) for name in names}}
    required = [name for name in names if chance.random() < 0.7]
    chance.shuffle(required)
    if required or chance.random() < 0.5:
        schema["required"] = required
    more = chance.random()
    if more < 0.6:
        schema["additionalProperties"] = False
    elif more < 0.75:
        schema["additionalProperties"] = _any(chance, depth + 1)
    return schema


def _array(chance: random.Random, depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "array", "items": _any(chance, depth + 1)}
    if chance.random() < 0.5:
        schema["minItems"] = chance.randrange(3)
    if chance.random() < 0.7:
        schema["maxItems"] = schema.get("minItems", 0) + chance.randrange(3)
    return schema


def _tuple(chance: random.Random, depth: int) -> dict[str, Any]:
    count = chance.randrange(1, 3)
    places = [_any(chance, depth + 1) for _ in range(count)]
    return {"type": "array", "prefixItems": places, "items": False, "minItems": count}


def _union(chance: random.Random, depth: int) -> dict[str, Any]:
    return {"anyOf": [_any(chance, depth + 1) for _ in range(chance.randrange(2, 4))]}


def _all_of(chance: random.Random, depth: int) -> dict[str, Any]:
    least = chance.randrange(-5, 5)
    return {"allOf": [{"type": "integer", "minimum": least}, {"maximum": least + chance.randrange(100)}]}


def _several(chance: random.Random, depth: int) -> dict[str, Any]:
    return {"type": chance.sample(["string", "integer", "null", "boolean"], 2), "maxLength": 6}


def _string(chance: random.Random, depth: int) -> dict[str, Any]:
    kind = chance.random()
    if kind < 0.25:
        return {"type": "string", "pattern": chance.choice(PATTERNS)}
    if kind < 0.5:
        return {"type": "string", "format": chance.choice(FORMATS)}
    schema: dict[str, Any] = {"type": "string"}
    if chance.random() < 0.5:
        schema["minLength"] = chance.randrange(4)
    if chance.random() < 0.8:
        schema["maxLength"] = schema.get("minLength", 0) + chance.randrange(8)
    return schema


def _integer(chance: random.Random, depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "integer"}
    least = chance.randrange(-200, 200)
    if chance.random() < 0.6:
        schema[chance.choice(["minimum", "exclusiveMinimum"])] = least
    if chance.random() < 0.6:
        schema[chance.choice(["maximum", "exclusiveMaximum"])] = least + chance.randrange(2, 500)
    if chance.random() < 0.1:
        schema["multipleOf"] = chance.choice([2, 5, 10])
    return schema


def _number(chance: random.Random, depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "number"}
    least = round(chance.uniform(-10, 10), 1)
    if chance.random() < 0.6:
        schema["minimum"] = least
    if chance.random() < 0.6:
        schema["maximum"] = round(least + chance.uniform(0.5, 50), 2)
    return schema


def _boolean(chance: random.Random, depth: int) -> dict[str, Any]:
    return {"type": "boolean"}


def _null(chance: random.Random, depth: int) -> dict[str, Any]:
    return {"type": "null"}


def _enum(chance: random.Random, depth: int) -> dict[str, Any]:
    return {"enum": chance.sample([*WORDS, 1, -2.5, None, True], chance.randrange(1, 5))}


def _const(chance: random.Random, depth: int) -> dict[str, Any]:
    return {"const": chance.choice([*WORDS, 7, False])}
