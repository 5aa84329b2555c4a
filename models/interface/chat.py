"""Messages of a conversation, as prompts are built from them and as answers become them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class ModelCall:
    """A call of a tool that the model asks for; `arguments` is JSON text, as the model wrote it."""

    name: str
    arguments: str
    id: str = ""


@dataclass(frozen=True, slots=True)
class ChatMessage:
    """One message. An assistant's may have `calls`, and the `reasoning` that precedes its content. One of the role
    `tool` is the result of `call_id`.
    """

    role: str
    content: str
    calls: tuple[ModelCall, ...] = ()
    call_id: str = ""
    name: str = ""
    reasoning: str = ""


class PastTurn(NamedTuple):
    """An earlier turn. `steps` are the messages between prompt and answer: calls of tools and their results.

    A turn that ended in calls, or was cut before its first word, has no answer: the last step of the former has the
    calls. `before` are messages before the prompt.
    """

    prompt: str
    answer: str
    steps: tuple[ChatMessage, ...] = ()
    before: tuple[ChatMessage, ...] = ()

    @property
    def messages(self) -> list[ChatMessage]:
        asked = [ChatMessage("user", self.prompt)] if self.prompt or not self.steps else []
        answered = [ChatMessage("assistant", self.answer)] if self.answer else []
        return [*self.before, *asked, *self.steps, *answered]
