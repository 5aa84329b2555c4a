"""Read the arguments of one call, piece by piece, as the JSON text that clients get.

A reader consumes as much of the text as it understands. What it adds to the JSON does not depend on the pieces.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from models.tools.format import ArgumentStyle, ToolFormat
from models.tools.values import ALL_TYPES, STRING, json_of, json_of_literal, quoted, types_of


class ArgumentProgress(enum.Enum):
    """Whether the arguments go on, are complete, or leave the form."""

    OPEN = enum.auto()
    COMPLETE = enum.auto()
    BROKEN = enum.auto()


@dataclass(frozen=True, slots=True)
class ReadArguments:
    """`length` characters were consumed; they add `json` to the arguments."""

    length: int
    json: str
    progress: ArgumentProgress


class ArgumentReader(Protocol):
    def read(self, text: str) -> ReadArguments:
        """Read the next text; what was not consumed comes again, with more behind it."""


def reader_of(form: ToolFormat, name: str) -> ArgumentReader:
    """The reader of the arguments of one call of the tool `name`."""
    match form.arguments:
        case ArgumentStyle.JSON:
            return JsonReader()
        case ArgumentStyle.TAGGED:
            return TaggedReader(form, form.schemas.get(name))
        case ArgumentStyle.PYTHON:
            return PythonReader()


class JsonReader:
    """One JSON object, which is passed on as it is."""

    def __init__(self) -> None:
        self._depth = 0
        self._in_string = False
        self._escaped = False

    def read(self, text: str) -> ReadArguments:
        end = self._end(text)
        if end is None:
            return ReadArguments(len(text), text, ArgumentProgress.OPEN)
        return ReadArguments(end, text[:end], ArgumentProgress.COMPLETE)

    def _end(self, text: str) -> int | None:
        for at, character in enumerate(text):
            if self._escaped:
                self._escaped = False
            elif self._in_string:
                self._escaped = character == "\\"
                self._in_string = character != '"'
            elif character == '"':
                self._in_string = True
            elif character in "{[":
                self._depth += 1
            elif character in "}]":
                self._depth -= 1
                if self._depth == 0:
                    return at + 1
        return None


class _Pieces:
    """A JSON object that is written argument by argument."""

    def __init__(self) -> None:
        self._has_any = False
        self._new: list[str] = []

    def begin(self, key: str) -> None:
        self._new.append(f"{', ' if self._has_any else '{'}{quoted(key)}: ")
        self._has_any = True

    def add(self, json: str) -> None:
        self._new.append(json)

    def end(self) -> None:
        self._new.append("}" if self._has_any else "{}")

    def new(self) -> str:
        """What was added since the last time."""
        found, self._new = "".join(self._new), []
        return found


class TaggedReader:
    """Values between tags. Strings are passed on as they come, other values when they are complete.

    A value ends where its closing tag is followed by the next key or the end of the call, so it may contain the tag.
    """

    def __init__(self, form: ToolFormat, schema: Mapping[str, Any] | None) -> None:
        self._form = form
        self._schema = schema or {}
        self._pieces = _Pieces()
        self._types: frozenset[str] | None = None  # of the value that is being read
        self._value: list[str] = []

    def read(self, text: str) -> ReadArguments:
        at, progress = 0, ArgumentProgress.OPEN
        while progress is ArgumentProgress.OPEN:
            is_value = self._types is not None
            length, progress = self._read_value(text[at:]) if is_value else self._read_key(text[at:])
            at += length
            if is_value is (self._types is not None):
                break
        return ReadArguments(at, self._pieces.new(), progress)

    def _read_key(self, text: str) -> tuple[int, ArgumentProgress]:
        form = self._form
        if text.startswith(form.key):
            marks = [mark for mark in (form.value, form.other_value) if mark and text.find(mark, len(form.key)) >= 0]
            if not marks:
                return 0, ArgumentProgress.OPEN
            mark = min(marks, key=lambda one: text.find(one, len(form.key)))
            end = text.find(mark, len(form.key))
            key = text[len(form.key) : end]
            properties = self._schema.get("properties")
            schema = properties.get(key) if isinstance(properties, Mapping) else None
            if form.other_value:
                self._types = STRING if mark == form.value else ALL_TYPES - STRING
            else:
                self._types = ALL_TYPES if schema is None else types_of(schema, self._schema)
            self._pieces.begin(key)
            if self._types == STRING:
                self._pieces.add('"')
            return end + len(mark), ArgumentProgress.OPEN
        if text.startswith(form.closing):
            self._pieces.end()
            return 0, ArgumentProgress.COMPLETE
        may_follow = form.key.startswith(text) or form.closing.startswith(text)
        return 0, ArgumentProgress.OPEN if may_follow else ArgumentProgress.BROKEN

    def _read_value(self, text: str) -> tuple[int, ArgumentProgress]:
        ends = (self._form.value_end + self._form.key, self._form.value_end + self._form.closing)
        found = [at for at in map(text.find, ends) if at >= 0]
        length = min(found) if found else len(text) - _beginning_of(ends, text)
        self._add(text[:length])
        if found:
            self._close_value()
            length += len(self._form.value_end)
        return length, ArgumentProgress.OPEN

    def _add(self, part: str) -> None:
        if self._types == STRING:
            self._pieces.add(quoted(part)[1:-1])
        else:
            self._value.append(part)

    def _close_value(self) -> None:
        assert self._types is not None
        self._pieces.add('"' if self._types == STRING else json_of("".join(self._value), self._types))
        self._types, self._value = None, []


class PythonReader:
    """Keyword arguments, each of which is passed on when it is complete."""

    _KEY = re.compile(r"\s*([^\W\d][\w.-]*)\s*=(?!=)")
    _KEY_BEGUN = re.compile(r"\s*([^\W\d][\w.-]*)?\s*=?")

    def __init__(self) -> None:
        self._pieces = _Pieces()
        self._key: str | None = None  # of the value that is being read
        self._value: list[str] = []
        self._depth = 0
        self._quote = ""
        self._escaped = False

    def read(self, text: str) -> ReadArguments:
        at, progress = 0, ArgumentProgress.OPEN
        while progress is ArgumentProgress.OPEN:
            key = self._key
            length, progress = self._read_key(text[at:]) if key is None else self._read_value(key, text[at:])
            at += length
            if self._key is key:
                break
        return ReadArguments(at, self._pieces.new(), progress)

    def _read_key(self, text: str) -> tuple[int, ArgumentProgress]:
        if text.lstrip().startswith(")"):
            self._pieces.end()
            return len(text) - len(text.lstrip()), ArgumentProgress.COMPLETE
        if self._KEY_BEGUN.fullmatch(text):
            return 0, ArgumentProgress.OPEN
        key = self._KEY.match(text)
        if key is None:
            return 0, ArgumentProgress.BROKEN
        self._key = key[1]
        return key.end(), ArgumentProgress.OPEN

    def _read_value(self, key: str, text: str) -> tuple[int, ArgumentProgress]:
        end = next((at for at, character in enumerate(text) if self._ends(character)), None)
        self._value.append(text[:end])
        if end is None:
            return len(text), ArgumentProgress.OPEN
        value = json_of_literal("".join(self._value))
        if value is None:
            return end, ArgumentProgress.BROKEN
        self._pieces.begin(key)
        self._pieces.add(value)
        self._key, self._value = None, []
        return end + (text[end] == ","), ArgumentProgress.OPEN

    def _ends(self, character: str) -> bool:
        """Whether the value ends before this character, the next one."""
        if self._escaped:
            self._escaped = False
        elif self._quote:
            self._escaped = character == "\\"
            self._quote = "" if character == self._quote else self._quote
        elif character in "\"'":
            self._quote = character
        elif not self._depth and character in ",)":
            return True
        else:
            self._depth += (character in "([{") - (character in ")]}")
        return False


def _beginning_of(texts: Sequence[str], text: str) -> int:
    """Length of the longest suffix of `text` with which one of the texts begins."""
    longest = min(len(text), max(map(len, texts)) - 1)
    return next((n for n in range(longest, 0, -1) if any(one.startswith(text[-n:]) for one in texts)), 0)
