"""What is wrong with a policy file: all of it, each mistake with its table, its key and what may stand there."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from enum import Enum
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec

Table = TypeVar("Table", bound=msgspec.Struct)


def fitting(value: object, kind: type[Table]) -> Table | None:
    """The table; None if its types are wrong."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError:
        return None


def _type_mistakes(value: object, kind: Any, path: str) -> Iterator[str]:
    """Where a value of TOML has not the type that its place needs."""
    origin, arguments = get_origin(kind), get_args(kind)
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        yield from table_mistakes(value, kind, path)
    elif origin in {Union, UnionType}:
        (inner,) = (one for one in arguments if one is not NoneType)
        yield from _type_mistakes(value, inner, path)
    elif origin is dict:
        if not isinstance(value, dict):
            yield f"{path}: must be a table"
            return
        for name, one in value.items():
            yield from _type_mistakes(one, arguments[1], _joined(path, name))
    elif origin is tuple:
        if not isinstance(value, list):
            yield f"{path}: must be a list"
            return
        for at, one in enumerate(value):
            yield from _type_mistakes(one, arguments[0], _item(path, at, one))
    elif origin is Literal or (isinstance(kind, type) and issubclass(kind, Enum)):
        valid = arguments if origin is Literal else [one.value for one in kind]
        if value not in valid:
            yield f"{path}: is {_shown(value)}; valid are {', '.join(map(_shown, valid))}"
    else:
        try:
            msgspec.convert(value, kind)
        except msgspec.ValidationError as error:
            yield f"{path}: {str(error)[:1].lower()}{str(error)[1:]}"


def table_mistakes(value: object, kind: type[msgspec.Struct], path: str = "") -> Iterator[str]:
    """What is wrong in the table: its types, else what the types cannot express."""
    if not isinstance(value, dict):
        yield f"{path}: must be a table"
        return
    wrong = [*_field_mistakes(value, kind, path)]
    yield from wrong
    read = None if wrong else fitting(value, kind)
    if read is not None and hasattr(read, "mistakes"):
        yield from (f"{path}: {mistake}" for mistake in read.mistakes())


def _field_mistakes(value: dict[str, Any], kind: type[msgspec.Struct], path: str) -> Iterator[str]:
    fields = {field.encode_name: field for field in msgspec.structs.fields(kind)}
    hints = get_type_hints(kind)
    for name in (one for one in value if one not in fields):
        near = difflib.get_close_matches(name, fields, 1)
        meant = f"did you mean {near[0]!r}? There are" if near else "there are"
        yield f"{_joined(path, name)}: is not known; {meant} {', '.join(fields)}"
    for name, field in fields.items():
        if name in value:
            yield from _type_mistakes(value[name], hints[field.name], _joined(path, name))
        elif field.required:
            yield f"{_joined(path, name)}: is missing"


def _joined(path: str, name: str) -> str:
    key = name if name.replace("-", "_").isidentifier() else f'"{name}"'
    return f"{path}.{key}" if path else key


def _item(path: str, at: int, one: object) -> str:
    name = one.get("name") if isinstance(one, dict) else None
    return f"{path}[{at}] ({name})" if isinstance(name, str) else f"{path}[{at}]"


def _shown(value: object) -> str:
    text = f'"{value}"' if isinstance(value, str) else repr(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


_LONGEST = 60
