"""An output constraint that begins behind the model's reasoning.

The form of an answer is the form of its text, and its reasoning is not part of that. While the model reasons, every
token may come but the ends of an answer: one that ended there would have no text, and so not its form.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence

from models.structured.matcher import Matcher
from models.text.reasoning import Reasoning, ReasoningTokens


class _Part(enum.Enum):
    """UNKNOWN --`begin`--> REASONING --`end`--> TEXT, or UNKNOWN --any other token--> TEXT."""

    UNKNOWN = enum.auto()
    REASONING = enum.auto()
    TEXT = enum.auto()


def after_reasoning(
    matcher: Matcher, begins: Reasoning | None, tags: ReasoningTokens | None, eos: frozenset[int]
) -> Matcher:
    """The constraint of `matcher`, of which no token has been drawn, for an answer that `begins` so."""
    if begins is None or tags is None:
        return matcher
    free = _without(bytes([0xFF]) * len(matcher.allowed()), eos)
    return AfterReasoning(matcher, tags, free, _Part.REASONING if begins is Reasoning.OPENED else _Part.UNKNOWN)


class AfterReasoning(Matcher):
    """`free`: the tokens that may come while the model reasons, as in `Matcher.allowed`."""

    __slots__ = ("_free", "_part", "_tags", "_text")

    def __init__(self, matcher: Matcher, tags: ReasoningTokens, free: bytes, part: _Part) -> None:
        self._text, self._tags, self._free, self._part = matcher, tags, free, part

    def copy(self) -> AfterReasoning:
        return AfterReasoning(self._text.copy(), self._tags, self._free, self._part)

    @property
    def complete(self) -> bool:
        return self._part is not _Part.REASONING and self._text.complete

    def allowed(self) -> bytes:
        if self._part is _Part.REASONING:
            return self._free
        allowed = self._text.allowed()
        return _with(allowed, self._tags.begin) if self._part is _Part.UNKNOWN else allowed

    def advance(self, token: int) -> None:
        if self._part is _Part.REASONING:
            self._part = _Part.TEXT if token == self._tags.end else _Part.REASONING
        elif self._part is _Part.UNKNOWN and token == self._tags.begin:
            self._part = _Part.REASONING
        else:
            self._text.advance(token)
            self._part = _Part.TEXT

    def ahead(self, tokens: Sequence[int]) -> list[bytes]:
        if self._part is _Part.TEXT:
            return self._text.ahead(tokens)
        state = self.copy()
        masks = [state.allowed()]
        for token in tokens[: self.allowed_count(tokens)]:
            state.advance(token)
            masks.append(state.allowed())
        return masks

    def allowed_count(self, tokens: Sequence[int]) -> int:
        begins = self._part is _Part.UNKNOWN and bool(tokens) and tokens[0] == self._tags.begin
        if self._part is not _Part.REASONING and not begins:
            return self._text.allowed_count(tokens)
        at = int(begins)
        while at < len(tokens) and _is_in(self._free, tokens[at]):
            at += 1
            if tokens[at - 1] == self._tags.end:
                return at + self._text.allowed_count(tokens[at:])
        return at


def _is_in(mask: bytes, token: int) -> bool:
    return bool(mask[token >> 3] & 1 << (token & 7))


def _with(mask: bytes, token: int) -> bytes:
    bits = bytearray(mask)
    bits[token >> 3] |= 1 << (token & 7)
    return bytes(bits)


def _without(mask: bytes, tokens: Iterable[int]) -> bytes:
    bits = bytearray(mask)
    for token in tokens:
        bits[token >> 3] &= ~(1 << (token & 7))
    return bytes(bits)
