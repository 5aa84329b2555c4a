"""Who asks, and what has been said so far: the memory that right answers are made from."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

from models.demo import words
from models.demo.phrasing import Style
from models.demo.words import Vocabulary


class Skill(enum.StrEnum):
    """What an answer shows."""

    ECHO = "order number echoed"
    NUMBER = "number recalled from an earlier turn"
    NAME = "name recalled"
    DECLINE = "declines what it doesn't know"
    REST = "rest"


@dataclass(frozen=True, slots=True)
class Turn:
    """A message and its only right answer; `values` are the parts of the answer that were copied from the dialogue."""

    skill: Skill
    user: str
    answer: str
    values: tuple[str, ...] = ()


@dataclass(slots=True)
class Customer:
    """One person in one dialogue; `facts` holds what they have told, by label: `name`, `order number`..."""

    rng: Random
    vocabulary: Vocabulary
    style: Style
    facts: dict[str, str] = field(default_factory=dict)
    cancelled: bool = False

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
