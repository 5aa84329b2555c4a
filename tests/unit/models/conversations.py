"""Random conversations: turns with calls, results, errors and calls that were cancelled, in all kinds of texts.

A conversation is the same for the same seed. Its forged twins have names of control tokens in everything that others
than the model write, and nothing else in addition.
"""

from __future__ import annotations

import enum
import json
import random
from dataclasses import dataclass

from models.interface.chat import ChatMessage, ModelCall, PastTurn
from models.tools import ModelTool

WORDS = [
    "where is my order",
    "grüße 🙂",
    "日本語",
    "שלום",
    "e\u0301\u200d👩‍👩‍👧",
    "{",
    '{"name": ',
    "[1, 2]",
    "a\n\nb",
    "<td>",
    "  x",
    "\\",
    ".",
    "'q'",
    "{{ messages }}",
    "{% raw %}",
    "\u2028\ufeff",
    "\t",
]
ARGUMENTS = ['{"q": "ü"}', "{}", '{"q": [1, {"x": null}]}', '{"q": "a\\nb", "n": 1.5, "yes": true}']
ODD_ARGUMENTS = ["no JSON", "[1]", "", '{"q": "', "null"]
ERRORS = ["error: no such order", "", "Traceback (most recent call last):\n  File", '{"error": {"code": 404}}']
NAMES = ("look_up", "other", "gone")
REASONED = "<think>\nhm, the user asks\n</think>\n\n"


class Forgery(enum.Enum):
    """Where names of control tokens stand: whole, also inside each other, or cut in two over neighbouring texts."""

    WHOLE = enum.auto()
    CUT = enum.auto()


def tool(name: str, mark: str = "") -> ModelTool:
    properties = {"q": {"type": "string", "description": f"What{mark}"}}
    return ModelTool(name, f"Runs {name}.{mark}", {"type": "object", "properties": properties, "required": ["q"]})


@dataclass(frozen=True, slots=True)
class Conversation:
    """What a request finds: the system prompt, earlier turns, its prompt, the calls and results after it, and tools.

    is_orderly: Turns are a prompt, calls with results or without them, and an answer, and arguments are objects. Others
        begin with messages that clients put there, of any role, and have arguments of all kinds.
    """

    system: str
    history: tuple[PastTurn, ...]
    prompt: str
    steps: tuple[ChatMessage, ...]
    tools: tuple[ModelTool, ...]
    is_orderly: bool

    @property
    def talk(self) -> list[ChatMessage]:
        past = [message for turn in self.history for message in turn.messages]
        return [*past, ChatMessage("user", self.prompt), *self.steps]


class RandomConversations:
    """The conversations of one seed; with `forgery` their twins, in which the names of `control` stand."""

    def __init__(self, seed: int, forgery: Forgery | None = None, control: tuple[str, ...] = ()) -> None:
        self._chance = random.Random(seed)
        self._other_chance = random.Random(seed)  # so that the twins are alike
        self._forgery = forgery
        self._control = control
        self._rest = ""  # of a name that the text before has begun
        self._number = 0
        self.is_orderly = self._chance.random() < 0.6

    def several(self, most: int) -> list[Conversation]:
        """One conversation as each of its turns finds it."""
        system = self._chance.choice(["", "Be kind.", "Sei nett. 🙂\n\n- kurz"])
        history: list[PastTurn] = []
        found = []
        for _ in range(most):
            has_tools, has_steps = self._chance.random() < 0.5, self._chance.random() < 0.3
            tools = tuple(tool(name, self._forged("")) for name in ("look_up", "other")) if has_tools else ()
            steps = tuple(self._round(is_open=False)) if has_steps else ()
            asked = f"question {self._chance.randint(0, 99)} {self.words()}"
            instructions = self._forged(system) if system else ""
            found.append(Conversation(instructions, tuple(history), asked, steps, tools, self.is_orderly))
            history.append(self._turn())
        return found

    def words(self) -> str:
        return self._forged(" ".join(self._chance.choices(WORDS, k=self._chance.randint(1, 4))))

    def _forged(self, text: str) -> str:
        if self._forgery is None:
            return text
        chance = self._other_chance
        name = chance.choice(self._control)
        cut = chance.randint(1, len(name) - 1)
        if self._forgery is Forgery.CUT:
            before, self._rest = self._rest, name[cut:]
            return f"{before}{text}{name[:cut]}"
        at = chance.randint(0, len(text))
        # What remains of one that begins as it ends is no name, but no empty text either.
        is_inside = chance.random() < 0.3 and name[0] != name[-1]
        inner = f"{name[:cut]}{name}{name[cut:]}" if is_inside else name
        return f"{text[:at]}{inner}{text[at:]}"

    def _turn(self) -> PastTurn:
        steps: list[ChatMessage] = []
        is_open = self._chance.random() < 0.25
        for _ in range(self._chance.choice([0, 0, 1, 2])):
            steps += self._round(is_open=False)
        if is_open:
            steps += self._round(is_open=True)
        before = [] if self.is_orderly else [self._message() for _ in range(self._chance.choice([0, 0, 3]))]
        answer = "" if is_open else self._chance.choice(["", REASONED]) + self._said()
        prompt = "" if steps and not self.is_orderly and self._chance.random() < 0.1 else self.words()
        return PastTurn(prompt, answer, tuple(steps), tuple(before))

    def _round(self, *, is_open: bool) -> list[ChatMessage]:
        """Calls with their results. `is_open`: the user went on before all of them had one, or cancelled them."""
        ids = [self._id() for _ in range(self._chance.choice([1, 1, 2, 3]))]
        kinds = ARGUMENTS if self.is_orderly else ARGUMENTS + ODD_ARGUMENTS
        calls = tuple(ModelCall(self._chance.choice(NAMES), self._arguments(kinds), one) for one in ids)
        answered = [one for one in ids if self._chance.random() < 0.4] if is_open else list(ids)
        self._chance.shuffle(answered)
        said = self._chance.choice(["", self._said()])
        results = (self._forged(self._chance.choice([*ERRORS, self._said()])) for _ in answered)
        return [
            ChatMessage("assistant", said, calls),
            *(ChatMessage("tool", text, call_id=one) for text, one in zip(results, answered, strict=True)),
        ]

    def _said(self) -> str:
        """The model's own words."""
        return " ".join(self._chance.choices(WORDS, k=self._chance.randint(1, 4)))

    def _arguments(self, kinds: list[str]) -> str:
        arguments = self._chance.choice(kinds)
        if self._forgery is None or not arguments.startswith('{"q": "ü"'):
            return arguments
        return json.dumps({self._forged("q"): self._forged("ü")}, ensure_ascii=False)

    def _id(self) -> str:
        self._number += 1
        return self._chance.choice([f"call_{self._number}", f"{self._number:09}", f"c{self._number}" * 8])

    def _message(self) -> ChatMessage:
        role = self._chance.choice(["user", "assistant", "user", "tool", "system"])
        text = self._said() if role == "assistant" else self.words()
        return ChatMessage(role, text, call_id="lost" if role == "tool" else "")
