"""Bodies as clients write them.

Clients write an option that is not set as null, and a whole number as a float. A null of a field whose type has none is
therefore as if the field were absent, and 16.0 is an integer where one is expected. The rule follows the body's type:
what a client may fill freely (schemas, metadata) stays as it is. A body may have a megabyte of small objects and the
event loop waits for this, so each type is examined once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import cache
from typing import Any

from msgspec import inspect

from app.process.near_names import with_hint

Ignored = dict[str, Collection[str]]
"""Names that have no effect, each with those that would have one in its place."""
_Read = Callable[[Any, str, Ignored], Any]
"""A value, the name of its place, and what is ignored so far; returns the value to convert."""
_MOST_HINTS = 12
_Kinds = tuple[inspect.Type, ...]


def named(ignored: Ignored) -> list[str]:
    """The names, the first ones with the name that is probably meant."""
    names: list[str] = []
    for name, known in ignored.items():
        place, dot, last = name.rpartition(".")
        names.append(f"{place}{dot}{with_hint(last, known)}" if len(names) < _MOST_HINTS else name)
    return names


def as_written(value: Any, record_type: Any, ignored: Ignored) -> Any:
    """The value of a body, ready to be converted to `record_type`.

    `ignored` gets the names of fields below the top level that the type does not have, such as `messages[].weight`.
    """
    read = _reader_of_type(record_type)
    return value if read is None else read(value, "", ignored)


@cache
def _reader_of_type(record_type: Any) -> _Read | None:
    return _reader(inspect.type_info(record_type))


def _reader(kind: inspect.Type) -> _Read | None:
    """None if nothing has to be done for values of this type."""
    kinds = _kinds(kind)
    structs = [one for one in kinds if isinstance(one, inspect.StructType)]
    readers = [(one.tag_field, one.tag, _struct_reader(one.cls)) for one in structs]
    list_read = next((_list_reader(one.item_type) for one in kinds if isinstance(one, inspect.VarTupleType)), None)
    is_whole = _is_whole(kinds)
    if not (readers or list_read or is_whole):
        return None

    plain = readers[0][2] if len(readers) == 1 else None

    def tagged(value: dict[str, Any]) -> _Read:
        named = (read for field, tag, read in readers if field is not None and value.get(field) == tag)
        return next(named, readers[0][2])

    def read(value: Any, name: str, ignored: Ignored) -> Any:
        kind_of_value = type(value)
        if kind_of_value is dict and readers:
            return (plain or tagged(value))(value, name, ignored)
        if kind_of_value is list and list_read is not None:
            return list_read(value, name, ignored)
        return int(value) if kind_of_value is float and is_whole and value.is_integer() else value

    return read


def _list_reader(items: inspect.Type) -> _Read | None:
    read = _reader(items)
    if read is None:
        return None

    def read_list(value: list[Any], name: str, ignored: Ignored) -> Any:
        kinds = {*map(type, value)}
        if kinds <= {int, str}:
            return value
        if kinds <= {int, float} and _is_whole(_kinds(items)):
            return [int(one) if type(one) is float and one.is_integer() else one for one in value]
        inner = f"{name}[]"
        return [read(one, inner, ignored) for one in value]

    return read_list


@cache
def _struct_reader(struct: type) -> _Read:
    kind = inspect.type_info(struct)
    assert isinstance(kind, inspect.StructType)
    fields = {
        field.encode_name: (_reader(field.type), not field.required and not _takes_null(_kinds(field.type)))
        for field in kind.fields
    }

    def read_struct(value: dict[str, Any], name: str, ignored: Ignored) -> dict[str, Any]:
        made = {}
        for key, one in value.items():
            field = fields.get(key)
            if field is None:
                if key == kind.tag_field:
                    made[key] = one
                elif name and one is not None:
                    ignored[f"{name}.{key}"] = fields.keys()
            elif one is None:
                if not field[1]:
                    made[key] = None
            elif field[0] is None or type(one) is str:
                made[key] = one
            else:
                made[key] = field[0](one, f"{name}.{key}" if name else key, ignored)
        return made

    return read_struct


def _kinds(kind: inspect.Type) -> _Kinds:
    return kind.types if isinstance(kind, inspect.UnionType) else (kind,)


def _is_whole(kinds: _Kinds) -> bool:
    return _has(kinds, inspect.IntType) and not _has(kinds, inspect.FloatType)


def _takes_null(kinds: _Kinds) -> bool:
    return _has(kinds, inspect.NoneType) or _has(kinds, inspect.AnyType)


def _has(kinds: _Kinds, wanted: type[inspect.Type]) -> bool:
    return any(isinstance(one, wanted) for one in kinds)
