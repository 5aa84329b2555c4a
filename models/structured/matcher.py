"""Where one answer stands in its shape."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from models.structured.grammar import ShapeError, step_error


class Matcher:
    """A pure function of the shape and the tokens taken, so an answer that is resumed stands where it stood."""

    __slots__ = ("_matcher",)

    def __init__(self, matcher: Any) -> None:
        self._matcher = matcher

    def copy(self) -> Matcher:
        return Matcher(self._matcher.deep_copy())

    @property
    def complete(self) -> bool:
        """Whether the answer has its shape and nothing can come after it."""
        return bool(self._matcher.is_stopped() and self._matcher.is_accepting())

    def allowed(self) -> bytes:
        """The tokens that may come next, one bit each, the lowest bit of the first byte being token 0."""
        bits: bytes = self._matcher.compute_bitmask()
        self._check()
        return bits

    def take(self, token: int) -> None:
        """`token` has been said; raises `ShapeError` where the shape does not allow it."""
        self._matcher.consume_token(token)
        self._check()

    def ahead(self, tokens: Sequence[int]) -> list[bytes]:
        """What is allowed now and after each of `tokens`, up to the first that is not; nothing is taken."""
        found = [self.allowed()]
        count = self._matcher.validate_tokens(list(tokens))
        for token in tokens[:count]:
            self._matcher.consume_token(token)
            found.append(self.allowed())
        self._matcher.rollback(count)
        self._check()
        return found

    def fitting(self, tokens: Sequence[int]) -> int:
        """How many of `tokens` may come next, one after the other."""
        return int(self._matcher.validate_tokens(list(tokens)))

    def forced(self) -> list[int]:
        """Tokens of the text that must come next, where there is only one."""
        return list(self._matcher.compute_ff_tokens())

    def _check(self) -> None:
        if self._matcher.is_error():
            raise ShapeError(step_error(self._matcher.get_error()))
