"""Read a table of a policy file as far as it can be read, and collect all that is wrong with it, each mistake with its
table, its key and what may stand there.

A value that cannot be read hides no other mistake: what the types cannot express is judged by the fields that can be
read, unless it is about one that cannot.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from types import NoneType, UnionType
from typing import Any, Literal, NamedTuple, TypeVar, Union, cast, get_args, get_origin, get_type_hints

import msgspec
from parley_client.plugins.discovery import Kind, PluginError
from pydantic import HttpUrl, TypeAdapter, ValidationError

from app.plugins.known import known
from app.process.near_names import nearest

Table = TypeVar("Table", bound=msgspec.Struct)


class Mistake(NamedTuple):
    """What the types of a table cannot express. `fields`: those that it is about, with spaces between them."""

    fields: str
    why: str


class _Read(NamedTuple):
    """What of a value can be read; `is_whole`: its types are right."""

    value: Any
    is_whole: bool


_UNREAD = _Read(None, is_whole=False)
_BLANKS: dict[Any, Any] = {str: "", float: 0.0, dict: {}}
"""Stand for required fields that cannot be read."""


def read_table(raw: object, kind: type[Table]) -> tuple[Table, list[str]]:
    """What of the table can be read, and its mistakes. List items and named tables keep their places."""
    reader = _Reader()
    return cast("Table", reader.table(raw, kind, "").value), reader.mistakes


@dataclass(slots=True)
class _Reader:
    mistakes: list[str] = field(default_factory=list)

    def table(self, raw: object, kind: type[msgspec.Struct], path: str) -> _Read:
        if not isinstance(raw, dict):
            self._add(path, "must be a table")
        given = raw if isinstance(raw, dict) else {}
        fields, hints = {one.encode_name: one for one in msgspec.structs.fields(kind)}, get_type_hints(kind)
        values: dict[str, Any] = {}
        unread = {name for name, one in fields.items() if one.required and name not in given}
        unread |= self._unknown(given, list(fields), path)
        for name, one in fields.items():
            hint = hints[one.name]
            if name in given:
                read = self._value(given[name], hint, _joined(path, name))
                if read is not _UNREAD:
                    values[one.name] = read.value
                unread |= set() if read.is_whole else {name}
            elif one.required and isinstance(raw, dict):
                self._add(_joined(path, name), "is missing")
            if one.required:
                values.setdefault(one.name, _BLANKS.get(get_origin(hint) or hint))
        made = kind(**values)
        if hasattr(made, "mistakes") and isinstance(raw, dict):
            for mistake in made.mistakes():
                if unread.isdisjoint(mistake.fields.split()):
                    self._add(path, mistake.why)
        return _Read(made, isinstance(raw, dict) and not unread)

    def _unknown(self, given: dict[str, Any], fields: list[str], path: str) -> set[str]:
        """The fields that are meant by names that are not known."""
        meant: set[str] = set()
        for name in (one for one in given if one not in fields):
            near = nearest(name, fields)
            hint = "there are" if near is None else f"did you mean {near!r}? There are"
            self._add(_joined(path, name), f"is not known; {hint} {', '.join(fields)}")
            meant |= set() if near is None or near in given else {near}
        return meant

    def _value(self, raw: Any, kind: Any, path: str) -> _Read:
        origin, arguments = get_origin(kind), get_args(kind)
        if origin in {Union, UnionType}:
            kinds = [one for one in arguments if one is not NoneType]
            kind = next((one for one in kinds if (get_origin(one) is dict) == isinstance(raw, dict)), kinds[0])
            origin, arguments = get_origin(kind), get_args(kind)
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            return self.table(raw, kind, path)
        if origin in {dict, tuple}:
            return self._named(raw, arguments[1], path) if origin is dict else self._listed(raw, arguments[0], path)
        if origin is Literal or (isinstance(kind, type) and issubclass(kind, Enum)):
            valid = arguments if origin is Literal else [one.value for one in kind]
            if raw not in valid:
                self._add(path, f"is {_shown(raw)}; valid are {', '.join(map(_shown, valid))}")
                return _UNREAD
        try:
            return _Read(msgspec.convert(raw, kind), is_whole=True)
        except msgspec.ValidationError as error:
            self._add(path, f"{str(error)[:1].lower()}{str(error)[1:]}")
            return _UNREAD

    def _named(self, raw: object, kind: Any, path: str) -> _Read:
        if not isinstance(raw, dict):
            self._add(path, "must be a table")
            return _UNREAD
        read = {name: self._value(one, kind, _joined(path, name)) for name, one in raw.items()}
        kept = {name: one.value for name, one in read.items() if one is not _UNREAD}
        return _Read(kept, all(one.is_whole for one in read.values()))

    def _listed(self, raw: object, kind: Any, path: str) -> _Read:
        if not isinstance(raw, list):
            self._add(path, "must be a list")
            return _UNREAD
        read = [self._value(one, kind, _item(path, at, one)) for at, one in enumerate(raw)]
        return _Read(tuple(one.value for one in read if one is not _UNREAD), all(one.is_whole for one in read))

    def _add(self, path: str, why: str) -> None:
        self.mistakes.append(f"{path}: {why}")


def plugin_mistake(key: str, kind: Kind, name: str) -> Mistake | None:
    """Of a key with the name of a plug-in, whose package is installed wherever the policy is read."""
    try:
        names = known(kind)
    except PluginError as error:
        return Mistake(key, f"{key}: {error}")
    valid = ", ".join(f'"{one}"' for one in names)
    return None if name in names else Mistake(key, f'{key}: is "{name[:60]}"; valid are {valid}')


def unknown_names(table: str, names: Iterable[str], known: Iterable[str]) -> Iterator[Mistake]:
    """The names that are readable are judged, whether all are or not."""
    known = sorted(known)
    for name in names:
        if name not in known:
            near = nearest(name, known)
            meant = "there are" if near is None else f"did you mean {near!r}? There are"
            yield Mistake("", f"{table}: {name!r} is not known; {meant} {', '.join(known)}")


def url_mistake(url: str) -> str | None:
    """Why no client can call this URL; None if one can. It may hold a password, so it is not quoted."""
    try:
        _URL.validate_python(url)
    except ValidationError:
        return "is no URL that begins with http:// or https:// and names a host"
    return None if url.isprintable() and " " not in url else "has a character that no URL has"


_URL: TypeAdapter[HttpUrl] = TypeAdapter(HttpUrl)


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
