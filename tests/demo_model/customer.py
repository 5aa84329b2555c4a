"""Who asks, and what has been said so far: the memory that right answers are made from."""

from __future__ import annotations

import enum
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from types import MappingProxyType
from typing import Any

from tests.demo_model import words
from tests.demo_model.phrasing import Style
from tests.demo_model.words import Vocabulary

TOOL: Mapping[str, Any] = MappingProxyType(
    {
        "name": "order_status",
        "description": "Where an order is.",
        "parameters": {
            "type": "object",
            "properties": {"order_number": {"type": "string"}},
            "required": ["order_number"],
        },
    }
)
"""The one tool that the demo model knows."""

_STATES = (
    "packed", "shipped", "delayed", "in production", "ready to be sent", "at the post office", "being packed",
    "out for delivery", "on its way", "in our warehouse", "waiting for payment", "at customs", "on hold",
)  # fmt: skip
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday", "3 May", "12 June", "24 March")


class Skill(enum.StrEnum):
    """What an answer shows."""

    ECHO = "order number echoed"
    NUMBER = "number recalled from an earlier turn"
    NAME = "name recalled"
    DECLINE = "declines what it doesn't know"
    CALL = "tool called"
    RESULT = "tool's result passed on"
    REST = "rest"


@dataclass(frozen=True, slots=True)
class Lookup:
    """A call of the shop's tool, and its result in one of the forms in which tools answer."""

    order: str
    status: str
    day: str
    form: int = 0

    @property
    def call(self) -> str:
        """As the model writes it: the form `json` of models/tools/forms."""
        return json.dumps({"name": TOOL["name"], "arguments": self.arguments})

    @property
    def arguments(self) -> dict[str, str]:
        return {"order_number": self.order}

    @property
    def result(self) -> str:
        found = {"status": self.status, "arrives": self.day}
        forms = (
            json.dumps(found),
            json.dumps(found, separators=(",", ":")),
            str(found),
            json.dumps(found, indent=2),
            json.dumps({"arrives": self.day, "status": self.status}),
            f"status: {self.status}, arrives: {self.day}",
        )
        return forms[self.form % len(forms)]


@dataclass(frozen=True, slots=True)
class Turn:
    """A message and its only right answer; `values` are the parts of the answer that were copied from the dialogue.

    With a `lookup`, a call of the tool and its result stand between the two.
    """

    skill: Skill
    user: str
    answer: str
    values: tuple[str, ...] = ()
    lookup: Lookup | None = None


@dataclass(slots=True)
class Customer:
    """One person in one dialogue; `facts` holds what they have told, by label: `name`, `order number`..."""

    rng: Random
    vocabulary: Vocabulary
    style: Style
    facts: dict[str, str] = field(default_factory=dict)
    cancelled: bool = False
    has_tool: bool = False

    def looks_up(self, asked: str, order: str) -> Turn:
        """A turn in which the assistant calls the tool and passes its result on."""
        lookup = Lookup(order, self.rng.choice(_STATES), self.rng.choice(_DAYS), self.rng.randrange(6))
        answer = self.by_name(f"Your order {order} is {lookup.status} and should arrive on {lookup.day}.")
        turn = self.turn(asked, answer, order, lookup.status, lookup.day, skill=Skill.RESULT)
        return replace(turn, lookup=lookup)

    def says(self, templates: Sequence[str], **values: str) -> str:
        """One of `templates`, as this customer types it."""
        return self.style.typed(self.rng, self.rng.choice(templates)).format(**values)

    def chance(self, probability: float) -> bool:
        return self.rng.random() < probability

    def tells_name(self) -> str:
        name = words.name(self.rng, self.vocabulary)
        if self.style.lower and self.chance(0.7):
            name = name.lower()
        self.facts["name"] = name
        return name

    def tells_order(self) -> str:
        self.facts["order number"] = words.order_number(self.rng)
        self.cancelled = False
        return self.facts["order number"]

    def picks_item(self) -> str:
        return words.item(self.rng, self.vocabulary)

    def by_name(self, sentence: str) -> str:
        """`sentence`, spoken to the customer by name where it is known.

        A name never begins an answer: without the space before it, it has other tokens than those that were read.
        """
        name = self.facts.get("name")
        return f"Certainly, {name}. {sentence}" if name else f"Certainly. {sentence}"

    def turn(self, user: str, answer: str, *copied: str, skill: Skill = Skill.REST) -> Turn:
        """A turn whose answer copies `copied`, and the customer's name where the answer says it."""
        name = self.facts.get("name")
        values = (*copied, name) if name and name in answer else copied
        return Turn(skill, user, answer, tuple(dict.fromkeys(values)))
