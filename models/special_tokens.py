"""Remove the names of special tokens from text.

User text must not become special tokens, and removing one name may join the halves of another. After each removal the
seam is therefore checked again, and only the seam: rereading the whole text each time would be quadratic in its length.

A chat template may join two texts, or a text and its own, so that a name arises of which each has a part. Then the
texts are kept apart by a character that no template strips.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

JOINER = "\u2060"
"""Of no width, and no white space."""


class SpecialTokens:
    """`names`: the special tokens as text."""

    def __init__(self, names: Iterable[str]) -> None:
        longest_first = sorted((name for name in names if name), key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, longest_first))) if longest_first else None
        firsts = "".join(sorted({name[0] for name in longest_first}))
        self._firsts = re.compile(f"[{re.escape(firsts)}]", re.IGNORECASE) if firsts else None
        self._reach = len(longest_first[0]) - 1 if longest_first else 0
        self._beginnings = frozenset(name[:end] for name in longest_first for end in range(1, len(name)))
        self._ends = frozenset(name[start:] for name in longest_first for start in range(1, len(name)))

    def found_in(self, text: str) -> list[str]:
        return [] if self._pattern is None else self._pattern.findall(text)

    def kept_apart(self, text: str) -> str:
        """The text with `JOINER` where it begins with the end of a name, or ends with the beginning of one."""
        sizes = range(1, min(self._reach, len(text)) + 1)
        before = JOINER if any(text[:size] in self._ends for size in sizes) else ""
        after = JOINER if any(text[-size:] in self._beginnings for size in sizes) else ""
        return f"{before}{text}{after}"

    def may_begin_in(self, text: str) -> bool:
        """Whether the text has a letter with which a name begins."""
        return self._firsts is not None and self._firsts.search(text) is not None

    def spelled(self, text: str) -> str:
        """The text with `JOINER` behind each letter with which a name begins."""
        return text if self._firsts is None else self._firsts.sub(lambda found: f"{found[0]}{JOINER}", text)

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
