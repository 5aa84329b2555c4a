"""The state of one answer in its output constraint."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from models.interface.generation import ConstraintError
from models.structured.grammar import step_error


class Matcher:
    """A pure function of the constraint and the tokens so far, so a resumed answer continues in the same state."""

    __slots__ = ("_matcher",)

    def __init__(self, matcher: Any) -> None:
        self._matcher = matcher

    def copy(self) -> Matcher:
        return Matcher(self._matcher.deep_copy())

    @property
    def complete(self) -> bool:
        """Whether the answer is complete and nothing may follow."""
        return bool(self._matcher.is_stopped() and self._matcher.is_accepting())

    def allowed(self) -> bytes:
        """The tokens that may come next, one bit each, token 0 being the lowest bit of the first byte."""
        bits: bytes = self._matcher.compute_bitmask()
        self._check()
        return bits

    def advance(self, token: int) -> None:
        """`token` was drawn; raises `ConstraintError` if the constraint does not allow it."""
        self._matcher.consume_token(token)
        self._check()

    def ahead(self, tokens: Sequence[int]) -> list[bytes]:
        """What is allowed now and after each of `tokens`, up to the first that is not allowed; the state is
        unchanged.
        """
        found = [self.allowed()]
        count = self._matcher.validate_tokens(list(tokens))
        for token in tokens[:count]:
            self._matcher.consume_token(token)
            found.append(self.allowed())
        self._matcher.rollback(count)
        self._check()
        return found

    def allowed_count(self, tokens: Sequence[int]) -> int:
        """How many of `tokens` may come next, one after the other."""
        return int(self._matcher.validate_tokens(list(tokens)))

    def _check(self) -> None:
        if self._matcher.is_error():
            raise ConstraintError(step_error(self._matcher.get_error()))
