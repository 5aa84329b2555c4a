"""What is common to the forms in which families of models write calls of tools; `forms.py` has them."""

from __future__ import annotations

import enum
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass


class NameStyle(enum.Enum):
    """How the name of a tool is written."""

    JSON = "json"
    BARE = "bare"


@dataclass(frozen=True, slots=True)
class ToolFormat:
    """The literal text around the name and the arguments of calls.

    trigger: The text that commits the model to a call.
    opening: What follows it, up to the first call's name.
    middle: Between name and arguments, a JSON object.
    closing: After the arguments of each call.
    separator: Between two calls, up to the next call's name.
    end: After the last call.
    leads: Text may precede the first call. Otherwise an answer is either text or calls.
    names: How names are written.
    after: Text that ends in this, and white space, may precede the first call although the form does not lead: for
        models whose answers begin with their reasoning.
    specials: The special tokens in all these texts, with their ids: text cannot spell them.
    """

    name: str
    trigger: str
    opening: str
    middle: str
    closing: str
    separator: str
    end: str = ""
    leads: bool = False
    names: NameStyle = NameStyle.JSON
    after: str = ""
    specials: tuple[tuple[str, int], ...] = ()

    @property
    def literals(self) -> tuple[str, ...]:
        return (self.trigger, self.opening, self.middle, self.closing, self.separator, self.end, self.after)

    def name_text(self, name: str) -> str:
        return name if self.names is NameStyle.BARE else json.dumps(name, ensure_ascii=False)

    def beginning(self, name: str) -> str:
        """A call up to its arguments."""
        return f"{self.trigger}{self.opening}{self.name_text(name)}{self.middle}"

    def written(self, calls: Sequence[tuple[str, str]]) -> str:
        """Calls, each a name and its arguments as JSON text, as a model writes them."""
        bodies = (f"{self.name_text(name)}{self.middle}{arguments}{self.closing}" for name, arguments in calls)
        return self.trigger + self.opening + self.separator.join(bodies) + self.end

    def is_in(self, text: str, name: str) -> bool:
        """Whether the text has a call of that name in this form, with white space anywhere between its parts."""
        parts = re.findall(r"\w+|\S", self.beginning(name))
        return re.search(r"\s*".join(map(re.escape, parts)), text) is not None
