r"""The dialogue of a model without chat template: lines that begin with who speaks.

    System: Be kind.\nUser: Which is the capital of France?\nAssistant:| Paris.\nUser: And of Spain?
                                                               answer  |      | where the next speaker begins

Such a model was never taught where its answer ends, and goes on with what the others might say. So the answer ends
before a line that begins with a speaker's name, and with it the blank lines before that. `User::find` is code, and a
name within a line is a word.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

PLAIN_ROLES: Mapping[str, str] = MappingProxyType(
    {"system": "System", "user": "User", "assistant": "Assistant", "tool": "Tool"}
)
_LABELS = tuple(f"{name}:" for name in PLAIN_ROLES.values())
_BEGINNINGS = frozenset(label[:length] for label in _LABELS for length in range(1, len(label) + 1))


class PlainStart(enum.Enum):
    """Where an answer in a plain dialogue begins: within a line, or with a new one."""

    WITHIN = "within"
    NEW_LINE = "new_line"


def plain_prompt(messages: Sequence[dict[str, Any]], *, continues: bool = False) -> str:
    """The dialogue up to the answer, which continues the last message or is a new one."""
    lines = [_line(PLAIN_ROLES.get(one["role"], one["role"]), one["content"]) for one in messages]
    return "\n".join(lines if continues else [*lines, _line(PLAIN_ROLES["assistant"], "")])


def _line(name: str, text: str) -> str:
    # An answer begins with its own space, and stands in the next prompt as its tokens were.
    return f"{name}:{text}" if not text or text[0].isspace() else f"{name}: {text}"


class PlainAnswer:
    """The text of an answer up to the next speaker, piece by piece; it depends on the joined pieces only."""

    __slots__ = ("_begins_line", "_blank", "_label", "stopped")

    def __init__(self, start: PlainStart) -> None:
        self.stopped = False
        self._begins_line = start is PlainStart.NEW_LINE
        self._blank: list[str] = []  # white space that is held, from a line break on
        self._label = ""  # the beginning of a speaker's name that is held

    def add(self, text: str, *, may_end: bool = True) -> str:
        """What of the text may be shown now. `stopped` is set where the next speaker begins, if the answer may end."""
        shown: list[str] = []
        for character in text:
            if self._begins_line and self._label + character in _BEGINNINGS:
                self._label += character
                continue
            if self._label in _LABELS and character.isspace() and may_end:
                self.stopped = True
                break
            if not character.isspace() or self._label:
                shown += self._held()
            if character == "\n" or (self._blank and character.isspace()):
                self._blank.append(character)
            else:
                shown.append(character)
            self._begins_line = character == "\n"
        return "".join(shown)

    def finish(self) -> str:
        """What was held back, at the end of the answer."""
        return "" if self.stopped or self._label in _LABELS else "".join(self._held())

    def _held(self) -> list[str]:
        held = [*self._blank, self._label]
        self._blank, self._label = [], ""
        return held
