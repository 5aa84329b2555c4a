"""The form in which a model writes calls of tools. `PARLEY_TOOL_FORMAT` or `tool_format` of a model names it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class ToolFormat:
    """The literal text around the name and the arguments of calls; the entry point is an instance.

        trigger opening NAME middle ARGUMENTS closing [separator NAME middle ARGUMENTS closing]... end

    trigger: Commits the model to a call; not empty.
    leads: Text may precede the first call. Otherwise an answer is either text or calls.
    names: `json` in quotes, `bare` as they are.
    arguments: `json` one object; `tagged` each value between `key`, `value` and `value_end`, a text as it is and
        anything else as JSON; `python` keyword arguments.
    """

    trigger: str
    opening: str
    middle: str
    closing: str
    separator: str
    end: str = ""
    leads: bool = False
    names: Literal["json", "bare"] = "json"
    arguments: Literal["json", "tagged", "python"] = "json"
    key: str = ""
    value: str = ""
    value_end: str = ""
