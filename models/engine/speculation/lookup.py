"""Prompt lookup: an answer often repeats what stands in its prompt, so what came after its last few tokens before is
guessed to come after them again (the n-gram drafts of "Prompt Lookup Decoding", A. Saxena 2023).
"""

from __future__ import annotations

from collections.abc import Sequence

LENGTHS = (4, 2)  # tokens that must match, longer first
REACH = 8192  # tokens of a long prompt that are searched: indexing them delays other sequences


class Lookup:
    """The positions of all short n-grams of one sequence; it reads each token once."""

    __slots__ = ("_known", "_read")

    def __init__(self, tokens: Sequence[int]) -> None:
        self._known: dict[tuple[int, ...], int] = {}
        self._read = max(0, len(tokens) - REACH)

    def guess(self, tokens: Sequence[int], most: int) -> tuple[int, ...]:
        """Up to `most` tokens that followed the last occurrence of the last tokens of `tokens`."""
        for end in range(self._read + 1, len(tokens)):
            for length in LENGTHS:
                if end - length >= 0:
                    self._known[tuple(tokens[end - length : end])] = end
        self._read = max(self._read, len(tokens) - 1)
        for length in LENGTHS:
            if len(tokens) >= length and (at := self._known.get(tuple(tokens[-length:]))) is not None:
                return tuple(tokens[at : at + most])
        return ()
