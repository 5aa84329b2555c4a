"""Remove the names of special tokens from text.

User text must not become special tokens, and removing one name may join the halves of another. After each removal the
seam is therefore checked again, and only the seam: rereading the whole text each time would be quadratic in its length.
"""

from __future__ import annotations

import re
from collections.abc import Iterable


class SpecialTokens:
    """`names`: the special tokens as text."""

    def __init__(self, names: Iterable[str]) -> None:
        longest_first = sorted((name for name in names if name), key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, longest_first))) if longest_first else None
        self._reach = len(longest_first[0]) - 1 if longest_first else 0

    def removed_from(self, text: str) -> str:
        """The text without them, in time linear in its length."""
        if self._pattern is None:
            return text
        kept = _Kept()
        at = 0
        while (found := self._pattern.search(text, at)) is not None:
            kept.append(text[at : found.start()])
            at = self._close(kept, text, found.end())
        kept.append(text[at:])
        return kept.text

    def _close(self, kept: _Kept, text: str, at: int) -> int:
        """Remove what the seam between `kept` and the text from `at` on has joined; returns where the rest begins."""
        assert self._pattern is not None
        while True:
            before = kept.last(self._reach)
            found = self._pattern.search(before + text[at : at + self._reach])
            if found is None or found.start() >= len(before):
                return at
            kept.drop(len(before) - found.start())
            at += found.end() - len(before)


class _Kept:
    """The text so far, in pieces, so that removing its end is cheap."""

    def __init__(self) -> None:
        self._pieces: list[str] = []

    @property
    def text(self) -> str:
        return "".join(self._pieces)

    def append(self, piece: str) -> None:
        if piece:
            self._pieces.append(piece)

    def last(self, length: int) -> str:
        """The last characters, at most that many."""
        found: list[str] = []
        for piece in reversed(self._pieces):
            if length <= 0:
                break
            found.append(piece[-length:])
            length -= len(piece)
        return "".join(reversed(found))

    def drop(self, length: int) -> None:
        while length:
            piece = self._pieces.pop()
            if len(piece) > length:
                self._pieces.append(piece[:-length])
                return
            length -= len(piece)
