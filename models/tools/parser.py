"""Read calls of tools from an answer's text, piece by piece.

    text ──trigger──> opening ──> name ──middle──> arguments ──closing──> after ──separator──> name ...
                                                                            └──end of the answer

What precedes the trigger is text and passes through, except for a suffix that may be the trigger's beginning. The
arguments are passed on as they are written. A text that leaves the form (only an engine without grammars writes one)
is text again from the trigger on. The result depends on the joined pieces only, never on where they were cut.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from models.chat import ToolCall
from models.tools.format import ToolFormat


@dataclass(frozen=True, slots=True)
class CallDelta:
    """What a piece of text adds to call `index`: its `name` at its beginning, then more of its `arguments`."""

    index: int
    name: str = ""
    arguments: str = ""


class _State(enum.Enum):
    TEXT = enum.auto()
    OPENING = enum.auto()
    NAME = enum.auto()
    MIDDLE = enum.auto()
    ARGUMENTS = enum.auto()
    CLOSING = enum.auto()
    AFTER = enum.auto()
    BROKEN = enum.auto()


class ToolCallParser:
    """`calls` are the complete calls so far."""

    def __init__(self, form: ToolFormat) -> None:
        self.calls: list[ToolCall] = []
        self._form = form
        self._state = _State.TEXT
        self._at_start = True
        self._rest = ""  # unread text of the current state
        self._form_text = ""  # since the trigger, while no call is complete
        self._name = ""
        self._arguments: list[str] = []
        self._json = _JsonEnd()
        self._said: list[str] = []
        self._deltas: list[CallDelta] = []
        # Each reads what its state expects, and returns False if more text is needed.
        self._readers: dict[_State, Callable[[], bool]] = {
            _State.TEXT: self._read_text,
            _State.OPENING: partial(self._read_literal, form.opening, _State.NAME),
            _State.NAME: self._read_name,
            _State.MIDDLE: partial(self._read_literal, form.middle, _State.ARGUMENTS),
            _State.ARGUMENTS: self._read_arguments,
            _State.CLOSING: self._read_closing,
            _State.AFTER: partial(self._read_literal, form.separator, _State.NAME),
            _State.BROKEN: self._read_broken,
        }

    def step(self, text: str) -> tuple[str, tuple[CallDelta, ...]]:
        """The plain text and the parts of calls that `text` adds."""
        self._rest += text
        self._said, self._deltas = [], []
        while self._readers[self._state]():
            pass
        return "".join(self._said), tuple(self._deltas)

    def finish(self) -> str:
        """The text that was held back, at the end of the answer. The beginning of a call is no text."""
        if self._state in {_State.TEXT, _State.BROKEN}:
            held, self._rest = self._rest, ""
            return held
        return ""

    def _read_text(self) -> bool:
        trigger = self._form.trigger
        found = self._rest.find(trigger) if self._form.leads else 0 if self._rest.startswith(trigger) else -1
        if found >= 0 and (self._form.leads or self._at_start):
            self._said.append(self._rest[:found])
            self._rest = self._rest[found + len(trigger) :]
            self._form_text = trigger
            self._state = _State.OPENING
            return True
        keep = 0
        if self._form.leads:
            keep = next((n for n in range(len(trigger) - 1, 0, -1) if self._rest.endswith(trigger[:n])), 0)
        elif self._at_start and trigger.startswith(self._rest):
            keep = len(self._rest)
        pass_on = self._rest[: len(self._rest) - keep]
        if pass_on:
            self._at_start = False
            self._said.append(pass_on)
        self._rest = self._rest[len(pass_on) :]
        return False

    def _read_literal(self, literal: str, then: _State) -> bool:
        if self._rest.startswith(literal):
            self._read(len(literal), then)
            return True
        return self._leave() if not literal.startswith(self._rest) else False

    def _read_name(self) -> bool:
        if self._rest and not self._rest.startswith('"'):
            return self._leave()
        try:
            self._name, end = json.JSONDecoder().raw_decode(self._rest)
        except ValueError:
            return False
        self._read(end, _State.MIDDLE)
        return True

    def _read_arguments(self) -> bool:
        if not self._rest:
            return False
        if not self._arguments:
            self._deltas.append(CallDelta(len(self.calls), self._name))
        end = self._json.find(self._rest)
        part = self._rest if end is None else self._rest[:end]
        self._arguments.append(part)
        self._deltas.append(CallDelta(len(self.calls), arguments=part))
        self._rest = self._rest[len(part) :]
        if end is not None:
            self._state = _State.CLOSING
        return True

    def _read_broken(self) -> bool:
        self._said.append(self._rest)
        self._rest = ""
        return False

    def _read_closing(self) -> bool:
        """A call is complete with its arguments' last bracket and the first character of what follows it."""
        if not self._rest:
            return False
        closing = self._form.closing
        if not closing.startswith(self._rest[: len(closing)]):
            return self._leave()
        if len(self._rest) < len(closing):
            return False
        self.calls.append(ToolCall(self._name, "".join(self._arguments)))
        self._arguments = []
        self._json = _JsonEnd()
        self._read(len(closing), _State.AFTER)
        return True

    def _read(self, length: int, then: _State) -> None:
        self._form_text += self._rest[:length]
        self._rest = self._rest[length:]
        self._state = then

    def _leave(self) -> bool:
        """The text does not follow the form: what readers have not got yet is text, unless calls precede it."""
        if self._state in {_State.OPENING, _State.NAME} and not self.calls:
            self._rest = self._form_text + self._rest
        elif self._state is _State.AFTER and self._form.end and self._rest.startswith(self._form.end):
            self._rest = self._rest[len(self._form.end) :]
        self._state = _State.BROKEN
        return True


class _JsonEnd:
    """Finds the end of a JSON object in pieces of text."""

    def __init__(self) -> None:
        self._depth = 0
        self._in_string = False
        self._escaped = False

    def find(self, text: str) -> int | None:
        """The position after its last character; None if the object goes on behind `text`."""
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
