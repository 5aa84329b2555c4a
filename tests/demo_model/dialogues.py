"""Dialogues between customers and a shop's assistant: as many as asked for, the same for the same seed.

Dialogues come in two splits that share none: those held out use names and things that training never sees, and a
dialogue without any belongs to one split by the hash of what its customer says.
"""

from __future__ import annotations

import enum
import hashlib
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from tests.demo_model import words
from tests.demo_model.customer import TOOL, Customer, Skill, Turn
from tests.demo_model.phrasing import Style, expand, seeded
from tests.demo_model.topics import chat, memory, offtopic, orders, returns, shop
from tests.demo_model.wording import wording

_INTRODUCED = ("[Hi|Hello|Hey|Good morning|][,| ] [I am|my name is|this is|I'm] {name}[.|,| and]",)
_SYSTEM: list[str] = wording("system")["prompts"]
Topic = Callable[[Customer], list[Turn]]

_WEIGHTS: dict[Topic, float] = {
    orders.status: 4,
    orders.status_without_number: 2.5,
    orders.cancel: 1,
    orders.cancel_that: 1.5,
    orders.wrong_item: 0.8,
    returns.send_back: 1.5,
    returns.broken: 1.5,
    returns.refund: 0.5,
    memory.introduction: 0.8,
    memory.name_and_order: 0.6,
    memory.asks_name: 3,
    memory.asks_order: 2.5,
    memory.tells_order: 0.8,
    memory.tells_fact: 2,
    memory.asks_fact: 2.5,
    shop.question: 6,
    shop.stock: 1.2,
    shop.overview: 0.3,
    chat.how_are_you: 0.3,
    chat.fine: 0.5,
    chat.angry: 0.4,
    chat.thanks: 0.5,
    chat.hello: 0.4,
    offtopic.offtopic: 4,
}
_JOINED: tuple[Topic, ...] = (
    orders.status,
    orders.cancel,
    orders.wrong_item,
    returns.send_back,
    returns.broken,
    shop.question,
    shop.stock,
)


class Split(enum.Enum):
    TRAINING = "training"
    HELD_OUT = "held out"


@dataclass(frozen=True, slots=True)
class Dialogue:
    """What a chat template takes, with the right answers; `system` may be empty.

    has_tool: The assistant can look orders up.
    """

    system: str
    turns: tuple[Turn, ...]
    has_tool: bool = False

    def messages(self, turns: int, *, called: bool = True) -> list[dict[str, Any]]:
        """The prompt for the answer of turn `turns`, in the form of chat templates.

        If that turn looks something up, the prompt has the call and its result unless `called` is false.
        """
        found: list[dict[str, Any]] = [{"role": "system", "content": self.system}] if self.system else []
        for turn in self.turns[:turns]:
            found += [*_asked(turn), {"role": "assistant", "content": turn.answer}]
        last = _asked(self.turns[turns])
        return [*found, *(last if called else last[:1])]

    @property
    def skills(self) -> list[Skill]:
        """What each answer shows; a call is an answer."""
        return [skill for turn in self.turns for skill in ([Skill.CALL] if turn.lookup else []) + [turn.skill]]

    @property
    def split(self) -> Split:
        said = "\n".join(turn.user for turn in self.turns)
        return Split.HELD_OUT if hashlib.sha256(said.encode()).digest()[0] < 13 else Split.TRAINING


def _asked(turn: Turn) -> list[dict[str, Any]]:
    """The messages before the answer."""
    asked: list[dict[str, Any]] = [{"role": "user", "content": turn.user}]
    if turn.lookup is None:
        return asked
    call = {"type": "function", "function": {"name": TOOL["name"], "arguments": turn.lookup.arguments}}
    return [
        *asked,
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "content": turn.lookup.result},
    ]


def dialogues(seed: int, split: Split) -> Iterator[Dialogue]:
    """An endless stream of dialogues."""
    rng = seeded(f"{split.value} {seed}")
    vocabulary = words.UNSEEN if split is Split.HELD_OUT else words.SEEN
    while True:
        dialogue = _dialogue(Customer(rng, vocabulary, Style.of_somebody(rng)))
        if dialogue.split is split:
            yield dialogue


def held_out(seed: int, count: int) -> list[Dialogue]:
    return list(itertools.islice(dialogues(seed, Split.HELD_OUT), count))


def _dialogue(customer: Customer) -> Dialogue:
    rng = customer.rng
    customer.has_tool = customer.chance(0.3)
    system = _system(customer) if customer.chance(0.4) else ""
    wanted = rng.choices(
        (rng.randint(1, 3), rng.randint(3, 7), rng.randint(7, 12), rng.randint(12, 26)), (30, 40, 25, 3)
    )[0]
    turns: list[Turn] = []
    if customer.chance(0.15):
        turns += chat.hello(customer)
    if customer.chance(0.3):
        turns += memory.introduction(customer)
    while len(turns) < wanted:
        turns += _next(customer)
    if customer.chance(0.25):
        turns += chat.thanks(customer)
    return Dialogue(system, tuple(turns), customer.has_tool)


def _next(customer: Customer) -> list[Turn]:
    draw = customer.rng.random()
    if draw < 0.05:
        return _introduced(customer)
    if draw < 0.1:
        return _two_at_once(customer)
    return customer.rng.choices(list(_WEIGHTS), list(_WEIGHTS.values()))[0](customer)


def _introduced(customer: Customer) -> list[Turn]:
    """A question that begins with who asks it."""
    topic = customer.rng.choice(_JOINED)
    customer.facts.pop("name", None)
    anonymous = customer.by_name("")
    first, *others = topic(customer)
    name = customer.tells_name()
    told = customer.says(_INTRODUCED, name=name)
    answer = f"Hello {name}! {first.answer.removeprefix(anonymous)}"
    turn = customer.turn(f"{told} {first.user}", answer, *first.values, skill=first.skill)
    return [replace(turn, lookup=first.lookup), *others]


def _two_at_once(customer: Customer) -> list[Turn]:
    """Two questions in one message, answered one after the other."""
    one, other = customer.rng.sample(_JOINED, 2)
    first = one(customer)
    second = other(customer)
    if len(first) > 1 or len(second) > 1 or first[0].lookup or second[0].lookup:
        return [*first, *second]
    joined = customer.rng.choice((". ", ". And ", " and ", ". Also, ", "? ", ", ", ". Another thing: "))
    asked = first[0].user.rstrip(".?!") + joined + second[0].user
    answer = f"{first[0].answer} {second[0].answer.removeprefix(customer.by_name(''))}"
    values = [value for value in (*first[0].values, *second[0].values) if value in answer]
    return [customer.turn(asked, answer, *values, skill=first[0].skill)]


def _system(customer: Customer) -> str:
    rng = customer.rng
    template = " ".join(rng.sample(_SYSTEM, rng.choice((1, 1, 2, 3))))
    if customer.chance(0.15):
        template += " [The customer is|The customer's name is|You talk to|The user's name is] {customer}."
    text = expand(rng, template)
    name = customer.tells_name() if "{customer}" in text else ""
    odd = words.invented(rng)
    return text.format(item=customer.picks_item(), name=words.name(rng, customer.vocabulary), odd=odd, customer=name)
