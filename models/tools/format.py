"""What is common to the forms in which families of models write calls of tools; `forms.py` has them."""

from __future__ import annotations

import dataclasses
import enum
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from models.tools.tool import ModelTool
from models.tools.values import literal_of, object_of, plain_text_of


class NameStyle(enum.Enum):
    """How the name of a tool is written."""

    JSON = "json"
    BARE = "bare"


class ArgumentStyle(enum.Enum):
    """How the arguments of a call are written.

    JSON: One JSON object.
    TAGGED: Each value between tags: a string as it is, anything else as JSON. The tool's schema says which it is.
    PYTHON: Keyword arguments of Python.
    """

    JSON = "json"
    TAGGED = "tagged"
    PYTHON = "python"


@dataclass(frozen=True, slots=True)
class ToolFormat:
    """The literal text around the name and the arguments of calls.

    trigger: The text that commits the model to a call.
    opening: What follows it, up to the first call's name.
    middle: Between name and arguments.
    closing: After the arguments of each call.
    separator: Between two calls, up to the next call's name.
    end: After the last call.
    leads: Text may precede the first call. Otherwise an answer is either text or calls.
    commits: Whether the trigger alone is the beginning of a call. Otherwise text may begin like it, and only a tool's
        name behind it commits the model.
    names: How names are written.
    arguments: How arguments are written. With tags, `key` precedes each key, `value` stands between it and its value,
        and `value_end` after that; before a value that is no string `other_value` stands in its place, if there is one.
    beginnings: Other texts in place of the trigger, at the beginning of an answer: with white space or a fence before
        it, whose end is read over, or with the type of the call.
    after: Text that ends in this, and white space, may precede the first call although the form does not lead: for
        models whose answers begin with their reasoning.
    specials: The special tokens in all these texts, with their ids: text cannot spell them.
    schemas: The schemas of the arguments of the tools that an answer may call, by which its values are read.
    """

    name: str
    trigger: str
    opening: str
    middle: str
    closing: str
    separator: str
    end: str = ""
    leads: bool = False
    commits: bool = True
    names: NameStyle = NameStyle.JSON
    arguments: ArgumentStyle = ArgumentStyle.JSON
    key: str = ""
    value: str = ""
    other_value: str = ""
    value_end: str = ""
    beginnings: tuple[str, ...] = ()
    after: str = ""
    specials: tuple[tuple[str, int], ...] = ()
    schemas: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def literals(self) -> tuple[str, ...]:
        around = (self.trigger, self.opening, self.middle, self.closing, self.separator, self.end, self.after)
        return (*around, self.key, self.value, self.other_value, self.value_end)

    @property
    def example(self) -> str:
        """A call that shows the form, for a model that has not learned it."""
        if self.arguments is ArgumentStyle.JSON:
            return self.beginning("NAME") + "{...}" + self.closing + self.end
        return self.written([("NAME", '{"ARGUMENT": "VALUE"}')])

    def reading(self, tools: Sequence[ModelTool]) -> ToolFormat:
        """The form as the calls of these tools are read in it."""
        if self.arguments is ArgumentStyle.JSON:
            return self
        return dataclasses.replace(self, schemas={tool.name: tool.parameters for tool in tools})

    def name_text(self, name: str) -> str:
        return name if self.names is NameStyle.BARE else json.dumps(name, ensure_ascii=False)

    def beginning(self, name: str) -> str:
        """A call up to its arguments."""
        return f"{self.trigger}{self.opening}{self.name_text(name)}{self.middle}"

    def written(self, calls: Sequence[tuple[str, str]]) -> str:
        """Calls, each a name and its arguments as JSON text, as a model writes them."""
        bodies = (
            f"{self.name_text(name)}{self.middle}{self._arguments(arguments)}{self.closing}"
            for name, arguments in calls
        )
        return self.trigger + self.opening + self.separator.join(bodies) + self.end

    def is_in(self, text: str, name: str) -> bool:
        """Whether the text has a call of that name in this form, with white space anywhere between its parts."""
        parts = re.findall(r"\w+|\S", self.beginning(name))
        return re.search(r"\s*".join(map(re.escape, parts)), text) is not None

    def _arguments(self, arguments: str) -> str:
        if self.arguments is ArgumentStyle.JSON:
            return arguments
        values = object_of(arguments)
        if self.arguments is ArgumentStyle.PYTHON:
            return ", ".join(f"{key}={literal_of(value)}" for key, value in values.items())
        return "".join(
            f"{self.key}{key}{self.value_mark(is_text=isinstance(value, str))}{plain_text_of(value)}{self.value_end}"
            for key, value in values.items()
        )

    def value_mark(self, *, is_text: bool) -> str:
        """What stands between a key and its value."""
        return self.value if is_text or not self.other_value else self.other_value
