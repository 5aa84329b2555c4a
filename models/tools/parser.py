"""Read calls of tools from an answer's text, piece by piece.

    text ──trigger──> opening ──> name ──middle──> arguments ──closing──> after ──separator──> name ...
                                                                            └──end of the answer

What precedes the trigger is text and passes through, except for a suffix that may be the trigger's beginning. The
arguments are passed on as JSON (arguments.py). A text that leaves the form (only an engine without grammars writes one)
is text again from the trigger on. The result depends on the joined pieces only, never on where they were cut.
"""

from __future__ import annotations

import enum
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from models.interface.chat import ModelCall
from models.tools.arguments import ArgumentProgress, ArgumentReader, reader_of
from models.tools.format import NameStyle, ToolFormat


@dataclass(frozen=True, slots=True)
class CallDelta:
    """What a piece of text adds to call `index`: its `name` at its beginning, then more of its `arguments`."""

    index: int
    name: str = ""
    arguments: str = ""


FENCE, FENCE_END = "```", "\n```"
_NAME = re.compile(r"[\w.-]*")


class _State(enum.Enum):
    TEXT = enum.auto()
    OPENING = enum.auto()
    NAME = enum.auto()
    MIDDLE = enum.auto()
    ARGUMENTS = enum.auto()
    CLOSING = enum.auto()
    AFTER = enum.auto()
    REST = enum.auto()


class ToolCallParser:
    """`calls` are the complete calls so far."""

    def __init__(self, form: ToolFormat) -> None:
        self.calls: list[ModelCall] = []
        self._form = form
        self._state = _State.TEXT
        self._beginnings = (form.trigger, *form.beginnings)
        self._fence = ""  # what ends that in which the calls stand
        self._at_start = True
        self._after_reasoning = False  # whether the reasoning has ended
        self._unread = ""  # what the current state has not read yet
        self._form_text = ""  # since the trigger, while no call is complete
        self._name = ""
        self._arguments: list[str] = []
        self._reader: ArgumentReader = reader_of(form, "")
        self._text: list[str] = []
        self._deltas: list[CallDelta] = []
        # Each reads what its state expects, and returns False if more text is needed.
        self._readers: dict[_State, Callable[[], bool]] = {
            _State.TEXT: self._read_text,
            _State.OPENING: partial(self._read_literal, form.opening, _State.NAME),
            _State.NAME: self._read_name,
            _State.MIDDLE: self._read_middle,
            _State.ARGUMENTS: self._read_arguments,
            _State.CLOSING: self._read_closing,
            _State.AFTER: self._read_after,
            _State.REST: self._read_rest,
        }

    def step(self, text: str) -> tuple[str, tuple[CallDelta, ...]]:
        """The plain text and the parts of calls that `text` adds."""
        self._unread += text
        self._text, self._deltas = [], []
        while self._readers[self._state]():
            pass
        return "".join(self._text), tuple(self._deltas)

    def finish(self) -> str:
        """The text that was held back, at the end of the answer. The beginning of a call is no text."""
        held, self._unread = self._unread, ""
        if self._state in {_State.TEXT, _State.REST}:
            return held
        is_text = not self._form.commits and not self.calls and self._state in {_State.OPENING, _State.NAME}
        return self._form_text + held if is_text else ""

    def _read_text(self) -> bool:
        trigger = self._form.trigger
        if self._form.leads:
            start = self._unread.find(trigger)
        else:
            self._pass_space()
            trigger = self._begun_with()
            start = 0 if trigger else -1
        if start >= 0:
            self._text.append(self._unread[:start])
            self._unread = self._unread[start + len(trigger) :]
            self._form_text = trigger
            self._state = _State.OPENING
            return True
        if not self._form.leads and self._at_start and any(one.startswith(self._unread) for one in self._beginnings):
            return False
        mark = trigger if self._form.leads else self._form.after
        end = self._end_of(mark)
        if end is None:
            keep = next((n for n in range(len(mark) - 1, 0, -1) if self._unread.endswith(mark[:n])), 0)
            self._pass(len(self._unread) - keep)
            return False
        self._pass(end)
        self._at_start = self._after_reasoning = True
        return True

    def _begun_with(self) -> str:
        """The text by which an answer of a form that does not lead begins a call; empty if it does not."""
        if not self._at_start:
            return ""
        begun = next((one for one in self._beginnings if self._unread.startswith(one)), "")
        self._fence = FENCE_END if FENCE in begun else ""
        return begun

    def _end_of(self, mark: str) -> int | None:
        """Where the text ends that a call may follow; None if it is not there yet, or was."""
        if self._form.leads or not mark or self._after_reasoning or mark not in self._unread:
            return None
        return self._unread.index(mark) + len(mark)

    def _pass_space(self) -> None:
        """White space after the reasoning is text, and a call may follow it."""
        if self._at_start and self._after_reasoning:
            blank = len(self._unread) - len(self._unread.lstrip())
            self._text.append(self._unread[:blank])
            self._unread = self._unread[blank:]

    def _pass(self, length: int) -> None:
        if length:
            self._at_start = False
            self._text.append(self._unread[:length])
            self._unread = self._unread[length:]

    def _read_literal(self, literal: str, then: _State) -> bool:
        if self._unread.startswith(literal):
            self._read(len(literal), then)
            return True
        return self._leave() if not literal.startswith(self._unread) else False

    def _read_name(self) -> bool:
        if self._form.names is NameStyle.BARE:
            return self._read_bare_name()
        if self._unread and not self._unread.startswith('"'):
            return self._leave()
        try:
            self._name, end = json.JSONDecoder().raw_decode(self._unread)
        except ValueError:
            return False
        self._read(end, _State.MIDDLE)
        return True

    def _read_bare_name(self) -> bool:
        end = _NAME.match(self._unread)
        assert end is not None
        if end.end() == len(self._unread):
            return False
        name = end.group()
        if not name or (self._form.schemas and name not in self._form.schemas):
            return self._leave()
        self._name = name
        self._read(len(name), _State.MIDDLE)
        return True

    def _read_middle(self) -> bool:
        if not self._read_literal(self._form.middle, _State.ARGUMENTS):
            return False
        self._reader = reader_of(self._form, self._name)
        return True

    def _read_arguments(self) -> bool:
        if not self._unread:
            return False
        read = self._reader.read(self._unread)
        if read.json:
            if not self._arguments:
                self._deltas.append(CallDelta(len(self.calls), self._name))
            self._arguments.append(read.json)
            self._deltas.append(CallDelta(len(self.calls), arguments=read.json))
        if self._arguments:
            self._form_text = ""  # readers have a part of the call: it will be no text
            self._unread = self._unread[read.length :]
        else:
            self._read(read.length, _State.ARGUMENTS)
        match read.progress:
            case ArgumentProgress.COMPLETE:
                self._state = _State.CLOSING
            case ArgumentProgress.BROKEN:
                return self._leave()
            case ArgumentProgress.OPEN:
                return False
        return True

    def _read_rest(self) -> bool:
        self._text.append(self._unread)
        self._unread = ""
        return False

    def _read_closing(self) -> bool:
        """A call is complete with its arguments' last bracket and the first character of what follows it."""
        closing = self._form.closing
        if closing and not self._unread:
            return False
        if not closing.startswith(self._unread[: len(closing)]):
            return self._leave()
        if len(self._unread) < len(closing):
            return False
        self.calls.append(ModelCall(self._name, "".join(self._arguments)))
        self._arguments = []
        self._read(len(closing), _State.AFTER)
        return True

    def _read_after(self) -> bool:
        separator, end = self._form.separator, self._form.end or self._fence
        if self._unread.startswith(separator):
            self._read(len(separator), _State.NAME)
            return True
        if end and self._unread.startswith(end):
            self._unread = self._unread[len(end) :]
            self._state = _State.REST
            return True
        return False if separator.startswith(self._unread) or end.startswith(self._unread) else self._leave()

    def _read(self, length: int, then: _State) -> None:
        self._form_text += self._unread[:length]
        self._unread = self._unread[length:]
        self._state = then

    def _leave(self) -> bool:
        """The text does not follow the form: what readers have not got yet is text, unless calls precede it."""
        if self._state is not _State.TEXT and not self.calls and not self._arguments:
            self._unread = self._form_text + self._unread
        self._state = _State.REST
        return True
