"""A model ready to be asked: an engine, and prompts in the form that the engine takes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from models.generation import Engine, GenerationDefaults
from models.prompts import BuiltPrompt, Message


class Prompts(Protocol):
    def build(
        self,
        system: str,
        history: Sequence[tuple[str, str]] = (),
        prompt: str | None = None,
        messages: Sequence[Message] | None = None,
        *,
        reserve: int = 1,
        at: float = 0.0,
    ) -> BuiltPrompt:
        """Token ids of `prompt` behind `history`, or of `messages`; raises `PromptTooLong` or `PromptError`."""


@dataclass(frozen=True, slots=True)
class Serving:
    """`names` are what a request's `model` may say and mean this one; `text_of` is the text of one token alone."""

    engine: Engine
    prompts: Prompts
    defaults: GenerationDefaults
    names: frozenset[str]
    text_of: Callable[[int], str]
