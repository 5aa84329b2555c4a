"""Bodies as clients write them.

Clients write an option that is not set as null, and a whole number as a float. A null of a field whose type has none is
therefore as if the field were absent, and 16.0 is an integer where one is expected. The rule follows the body's type:
what a client may fill freely (schemas, metadata) stays as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from msgspec import inspect

_PLAIN = {bool, int, str}


def as_written(value: Any, record_type: Any, ignored: dict[str, None]) -> Any:
    """The value of a body, ready to be converted to `record_type`.

    `ignored` gets the names of fields below the top level that the type does not have, such as `messages[].weight`.
    """
    return _any(value, _type_of(record_type), "", ignored)


@cache
def _type_of(record_type: Any) -> inspect.Type:
    return inspect.type_info(record_type)


@cache
def _fields_of(record_type: type) -> Mapping[str, inspect.Field]:
    kind = _type_of(record_type)
    assert isinstance(kind, inspect.StructType)
    return {field.encode_name: field for field in kind.fields}


def _any(value: Any, kind: inspect.Type, name: str, ignored: dict[str, None]) -> Any:
    kinds = kind.types if isinstance(kind, inspect.UnionType) else (kind,)
    match value:
        case float() if value.is_integer() and not _has(kinds, inspect.FloatType) and _has(kinds, inspect.IntType):
            return int(value)
        case dict() if structs := [one for one in kinds if isinstance(one, inspect.StructType)]:
            return _struct(value, _tagged(value, structs), name, ignored)
        case list():
            items = next((one.item_type for one in kinds if isinstance(one, inspect.VarTupleType)), None)
            if items is None or {*map(type, value)} <= _PLAIN:
                return value
            return [_any(one, items, f"{name}[]", ignored) for one in value]
    return value


def _struct(value: dict[str, Any], kind: inspect.StructType, name: str, ignored: dict[str, None]) -> dict[str, Any]:
    fields, made = _fields_of(kind.cls), {}
    for key, one in value.items():
        field = fields.get(key)
        inner = f"{name}.{key}" if name else key
        if field is None:
            if key == kind.tag_field:
                made[key] = one
            elif name and one is not None:
                ignored[inner] = None
        elif one is not None or field.required or _takes_null(field.type):
            made[key] = _any(one, field.type, inner, ignored)
    return made


def _tagged(value: dict[str, Any], structs: list[inspect.StructType]) -> inspect.StructType:
    named = (one for one in structs if one.tag_field is not None and value.get(one.tag_field) == one.tag)
    return next(named, structs[0])


def _takes_null(kind: inspect.Type) -> bool:
    kinds = kind.types if isinstance(kind, inspect.UnionType) else (kind,)
    return _has(kinds, inspect.NoneType) or _has(kinds, inspect.AnyType)


def _has(kinds: tuple[inspect.Type, ...], wanted: type[inspect.Type]) -> bool:
    return any(isinstance(one, wanted) for one in kinds)
