r"""Separates a model's reasoning from its answer, piece by piece.

    <think>\n reasoning \n</think>\n\n answer

White space around both is left out. The result depends on the joined pieces only. Which tags a model writes is read
from its chat template and its tokens: most write `<think>`, Mistral's `[THINK]`, Cohere's `<|START_THINKING|>`.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from itertools import chain
from typing import Any

from models.text.control_tokens import sources


class Reasoning(enum.Enum):
    """Where an answer begins: inside its reasoning, which its prompt has opened, or before it, if it has one."""

    OPENED = "opened"
    POSSIBLE = "possible"


@dataclass(frozen=True, slots=True)
class ReasoningTags:
    """The texts around a reasoning."""

    begin: str
    end: str


@dataclass(frozen=True, slots=True)
class ReasoningTokens:
    """The tokens around a reasoning."""

    begin: int
    end: int


THINK = ReasoningTags("<think>", "</think>")
_KNOWN = (
    THINK,
    ReasoningTags("[THINK]", "[/THINK]"),
    ReasoningTags("<|START_THINKING|>", "<|END_THINKING|>"),
    ReasoningTags("<seed:think>", "</seed:think>"),
    ReasoningTags("◁think▷", "◁/think▷"),
    ReasoningTags("<thought>", "</thought>"),
    ReasoningTags("<reasoning>", "</reasoning>"),
)


def tags_of(tokenizer: Any) -> ReasoningTags | None:
    """Those that its model may write, of transformers' tokenizer: what its template has counts more than its tokens."""
    written, token = "\n".join(sources(tokenizer)), tokenizer.backend_tokenizer.token_to_id
    in_template = (one for one in _KNOWN if one.begin in written)
    in_vocabulary = (one for one in _KNOWN if token(one.begin) is not None)
    return next(chain(in_template, in_vocabulary), None)


def reasoning_tokens(tokenizer: Any) -> ReasoningTokens | None:
    """Those of transformers' tokenizer; None if one of its tags is no token."""
    tags = tags_of(tokenizer)
    if tags is None:
        return None
    begin, end = (tokenizer.backend_tokenizer.token_to_id(tag) for tag in (tags.begin, tags.end))
    return None if begin is None or end is None else ReasoningTokens(begin, end)


class ReasoningReader:
    def __init__(self, begins: Reasoning, tags: ReasoningTags = THINK) -> None:
        self._tags = tags
        self._rest = ""
        self._is_inside = begins is Reasoning.OPENED
        self._may_begin = begins is Reasoning.POSSIBLE
        self._is_new = True  # nothing of the current part has been released

    def step(self, text: str) -> tuple[str, str]:
        """What `text` adds to the reasoning and to the answer."""
        self._rest += text
        if self._may_begin and not self._begin():
            return "", ""
        reasoning = self._reasoning() if self._is_inside else ""
        return reasoning, "" if self._is_inside else self._release(len(self._rest))

    def finish(self) -> tuple[str, str]:
        """What was held back, at the end of the answer."""
        if self._is_inside:
            return self._release(len(self._rest.rstrip())), ""
        held, self._rest = self._rest, ""
        return "", held

    def _begin(self) -> bool:
        """Whether it is known if there is a reasoning."""
        begun = self._rest.lstrip()
        if len(begun) < len(self._tags.begin) and self._tags.begin.startswith(begun):
            return False
        self._may_begin = False
        if begun.startswith(self._tags.begin):
            self._is_inside = True
            self._rest = begun.removeprefix(self._tags.begin)
        else:
            self._is_new = False  # the answer of a model that does not reason is all that it writes
        return True

    def _reasoning(self) -> str:
        end = self._rest.find(self._tags.end)
        released = self._release(_sure(self._rest, self._tags.end) if end < 0 else len(self._rest[:end].rstrip()))
        if end >= 0:
            self._rest = self._rest[self._rest.index(self._tags.end) + len(self._tags.end) :]
            self._is_inside, self._is_new = False, True
        return released

    def _release(self, length: int) -> str:
        """The next characters, without the white space before a part."""
        released, self._rest = self._rest[:length], self._rest[length:]
        if self._is_new:
            released = released.lstrip()
            self._is_new = not released
        return released


def _sure(text: str, end: str) -> int:
    """How much of a reasoning is certainly no part of its end, or white space before that."""
    held = next((n for n in range(len(end) - 1, 0, -1) if text.endswith(end[:n])), 0)
    return len(text[: len(text) - held].rstrip())
