"""JSON schemas as their generators write them, from random types; the same for the same seed.

pydantic: Models, as `model_json_schema` writes them.
mcp: Tools of functions, as the SDK of MCP describes their arguments.
openapi: Components as OpenAPI 3.0 and 3.1 have them, written by hand after what servers publish.
zod: Kept in zod.json, which names its origin.
"""

from __future__ import annotations

import datetime as dt
import decimal
import enum
import inspect
import ipaddress
import json
import random
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Optional, Union

import pydantic
from mcp.server.mcpserver.tools import Tool
from pydantic import AnyUrl, BaseModel, ConfigDict, Field, create_model

ZOD = json.loads((Path(__file__).parent / "zod.json").read_text(encoding="utf-8"))
NAMES = ("id", "name", "größe", "tags", "created_at", "is_open", "x", "address", "note", "kind_of")
Schema = dict[str, Any]


class Colour(enum.Enum):
    RED = "red"
    GREEN = "grün"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 9


class Node(BaseModel):
    """A tree."""

    value: int
    children: list[Node] = Field(default=[], max_length=2)


class Point(NamedTuple):
    x: float
    y: float = 0.0


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int = Field(ge=0, le=9)


class Dog(BaseModel):
    kind: Literal["dog"] = "dog"
    name: Optional[str] = None  # noqa: UP045 - as people write it


Pet = Annotated[Union[Cat, Dog], Field(discriminator="kind")]  # noqa: UP007 - as people write it


def schemas_of(generator: str, seeds: range) -> Iterator[Schema]:
    if generator == "zod":
        yield from (ZOD["schemas"][seed % len(ZOD["schemas"])] for seed in seeds)
        return
    make: Callable[[_Types], Schema] = {"pydantic": _of_pydantic, "mcp": _of_mcp, "openapi": _of_openapi}[generator]
    yield from (make(_Types(seed)) for seed in seeds)


def model_of(seed: int) -> type[BaseModel]:
    """The model whose schema is the first of `schemas_of("pydantic", range(seed, seed + 1))`."""
    return _Types(seed).model()


def _of_pydantic(types: _Types) -> Schema:
    return types.model().model_json_schema()


def _of_mcp(types: _Types) -> Schema:
    def run(**given: Any) -> str:
        """Runs it."""
        return str(given)

    fields = {name: types.field() for name in types.names()}
    parameters = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            annotation=annotation,
            default=inspect.Parameter.empty if default is ... else default,
        )
        for name, (annotation, default) in fields.items()
    ]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {name: annotation for name, (annotation, _) in fields.items()}
    return Tool.from_function(run, name="run").parameters


def _of_openapi(types: _Types) -> Schema:
    """Of OpenAPI 3.1, or 3.0 with its `nullable`; a base with a discriminator, and two that extend it."""
    chance = types.chance
    base: Schema = {
        "type": "object",
        "required": ["kind"],
        "properties": {"kind": {"type": "string"}, "id": _published(chance)},
        "discriminator": {"propertyName": "kind", "mapping": {"cat": "#/components/schemas/Cat"}},
        "x-internal": True,
    }
    extended = {
        name: {
            "allOf": [
                {"$ref": "#/components/schemas/Base"},
                {"type": "object", "properties": {key: _published(chance) for key in chance.sample(NAMES[1:], 2)}},
            ],
            "description": f"A {name}.",
        }
        for name in ("Cat", "Dog")
    }
    for name, own in extended.items():
        own["allOf"][1]["properties"]["kind"] = {"type": "string", "enum": [name.lower()]}  # type: ignore[index]
    error = {
        "type": "object",
        "properties": {"code": {"type": "integer", "format": "int32"}, "text": {"type": "string"}},
    }
    schemas = {"Base": base, **extended, "Error": error}
    cat, dog, wrong = ({"$ref": f"#/components/schemas/{name}"} for name in ("Cat", "Dog", "Error"))
    choices: list[Schema] = [
        cat,
        dog,
        {"oneOf": [cat, dog], "discriminator": {"propertyName": "kind"}},
        {"anyOf": [cat, wrong]},
    ]
    properties = {name: _published(chance) for name in types.names()}
    root = {"type": "object", "properties": {**properties, "pet": chance.choice(choices)}, "required": ["pet"]}
    if chance.random() < 0.3:
        root["properties"]["pets"] = {"type": "array", "items": choices[0], "maxItems": 2, "uniqueItems": True}  # type: ignore[index]
    return {"title": "Answer", **root, "components": {"schemas": schemas}}


def _published(chance: random.Random) -> Schema:
    """A value as published documents describe it."""
    made: Schema = chance.choice(
        [
            {"type": "string", "format": "byte"},
            {"type": "string", "format": "password", "writeOnly": True},
            {"type": "string", "format": "date-time", "example": "2024-01-01T00:00:00Z"},
            {"type": "string", "format": "uuid", "readOnly": True},
            {"type": "string", "pattern": r"^\+?[1-9]\d{1,14}$"},
            {"type": "string", "enum": ["open", "closed"], "default": "open", "x-enum-varnames": ["Open", "Closed"]},
            {"type": "integer", "format": "int64", "minimum": 0},
            {"type": "integer", "format": "int32", "minimum": 1, "maximum": 100, "default": 20},
            {"type": "number", "format": "double", "minimum": 0, "exclusiveMaximum": 100},
            {"type": "boolean", "deprecated": True},
            {
                "type": "array",
                "items": {"type": "string", "minLength": 1},
                "uniqueItems": True,
                "xml": {"wrapped": True},
            },
            {"type": "object", "additionalProperties": {"type": "string"}},
            {"type": "object", "properties": {"a": {"type": "string"}}, "externalDocs": {"url": "http://127.0.0.1"}},
            {"allOf": [{"$ref": "#/components/schemas/Error"}], "description": "why", "nullable": True},
        ]
    )
    if "type" in made and chance.random() < 0.3:
        return {**made, "type": [made["type"], "null"]} if "enum" not in made else {**made, "nullable": True}
    return made


class _Types:
    """Random annotations as people write them."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self._seed = seed
        self._number = 0
        self._models: list[type[BaseModel]] = []

    def names(self) -> list[str]:
        return self.chance.sample(NAMES, self.chance.randint(1, 4))

    def model(self, depth: int = 0) -> type[BaseModel]:
        chance = self.chance
        self._number += 1
        extra = chance.choice([None, None, None, "forbid", "allow"])
        config = ConfigDict(title=chance.choice([None, "A title"]), use_enum_values=True, protected_namespaces=())
        if extra is not None:
            config["extra"] = extra
        base = chance.choice(self._models) if self._models and chance.random() < 0.15 else None
        fields: dict[str, Any] = {name: self.field(depth) for name in self.names()}
        name = f"Part{self._number}"
        if base is not None:
            made = create_model(name, __base__=base, **fields)
        else:
            made = create_model(name, __config__=config, **fields)
        made.__doc__ = chance.choice([None, "What it is."])
        self._models.append(made)
        return made

    def field(self, depth: int = 0) -> tuple[Any, Any]:
        """An annotation, and the default; `...` for none."""
        chance = self.chance
        annotation = self.annotation(depth)
        told = Field(description="about it", examples=[chance.choice(["e", 1])], title=chance.choice([None, "T"]))
        if chance.random() < 0.3:
            annotation = Annotated[annotation, told]
        if chance.random() < 0.35:
            return Union[annotation, None], None  # noqa: UP007 - the annotation is a value
        return annotation, ...

    def annotation(self, depth: int) -> Any:
        chance = self.chance
        kinds: list[Callable[[], Any]] = [self._text, self._text, self._number_kind, self._plain]
        if depth < 3:
            several = partial(self._several, depth + 1)
            kinds += [several, several, partial(self._model, depth + 1)]
        return chance.choice(kinds)()

    def _text(self) -> Any:
        return self.chance.choice(
            [
                str,
                Annotated[str, Field(min_length=1, max_length=8)],
                Annotated[str, Field(pattern=r"^[A-Z]{2}-\d{1,4}$")],
                Annotated[str, pydantic.StringConstraints(strip_whitespace=True, to_lower=True, max_length=5)],
                Literal["a", "b", "grün"],
                Colour,
                pydantic.SecretStr,
                uuid.UUID,
                AnyUrl,
                dt.datetime,
                dt.date,
                dt.time,
                dt.timedelta,
                ipaddress.IPv4Address,
                Path,
                bytes,
            ]
        )

    def _number_kind(self) -> Any:
        return self.chance.choice(
            [
                int,
                float,
                bool,
                Level,
                decimal.Decimal,
                pydantic.PositiveInt,
                pydantic.NonNegativeFloat,
                Annotated[int, Field(ge=-3, lt=40)],
                Annotated[float, Field(gt=0, le=1.5)],
                Annotated[int, Field(multiple_of=5)],
                Literal[1, 2, 3],
                Literal["x", 7, None, True],  # noqa: PYI061 - as people write it
            ]
        )

    def _plain(self) -> Any:
        return self.chance.choice([Any, dict, list, Point, Node, Pet, None, dict[str, Any], object])

    def _several(self, depth: int) -> Any:
        inner = self.annotation(depth)
        return self.chance.choice(
            [
                list[inner],
                Annotated[list[inner], Field(min_length=1, max_length=3)],
                set[str],
                frozenset[int],
                dict[str, inner],
                dict[Literal["a", "b"], int],
                Annotated[dict[str, int], Field(max_length=3)],
                tuple[inner, int],
                tuple[str, ...],
                tuple[()],
                Union[inner, str],  # noqa: UP007 - the annotation is a value
                Optional[inner],  # noqa: UP045
            ]
        )

    def _model(self, depth: int) -> Any:
        reused = self._models and self.chance.random() < 0.3
        return self.chance.choice(self._models) if reused else self.model(depth)
