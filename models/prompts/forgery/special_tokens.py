"""Remove the names of special tokens from text.

User text must not become special tokens, and removing one name may join the halves of another. After each removal the
seam is therefore checked again, and only the seam: rereading the whole text each time would be quadratic in its length.

A chat template may join two texts, or a text and its own, so that a name arises of which each has a part. Then the
texts are kept apart by a character that no template strips.

Some tokenizers find tokens in text that they have normalized (normalizing.py). A text that has a name only then is
replaced by its normalized form, without the name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from models.prompts.forgery.names_pattern import names_pattern
from models.prompts.forgery.normalizing import Normalizing

JOINER = "\u2060"
"""Of no width, and no white space."""


class SpecialTokens:
    """`names`: the special tokens as text. `normalizing`: what the tokenizer does before it finds some of them."""

    def __init__(self, names: Iterable[str], normalizing: Normalizing | None = None) -> None:
        self._normalizing = normalizing
        self._joiner = JOINER if normalizing is None else normalizing.joiner
        spelled = {name for name in names if name}
        if normalizing is not None:
            spelled |= {normalizing.of(name) for name in spelled} - {""}
        longest_first = sorted(spelled, key=len, reverse=True)
        self._pattern = re.compile(names_pattern(spelled))
        firsts = "".join(sorted({name[0] for name in longest_first}))
        self._firsts = re.compile(f"[{re.escape(firsts)}]", re.IGNORECASE) if firsts else None
        self._reach = len(longest_first[0]) - 1 if longest_first else 0
        self._first_letters = frozenset(name[0] for name in longest_first)
        self._last_letters = frozenset(name[-1] for name in longest_first)
        self._beginnings = frozenset(name[:end] for name in longest_first for end in range(1, len(name)))
        self._ends = frozenset(name[start:] for name in longest_first for start in range(1, len(name)))

    def found_in(self, text: str) -> list[str]:
        """The names in the text, and then those in what the tokenizer makes of it."""
        read = self._normalized(text)
        return self._pattern.findall(text) + (self._pattern.findall(read) if read != text else [])

    def kept_apart(self, text: str) -> str:
        """The text with a joiner where it begins with the end of a name, or ends with the beginning of one."""
        read = self._normalized(text)
        sizes = range(1, min(self._reach, len(read)) + 1)
        head, tail = read[: self._reach], read[-self._reach :]
        # A part of a name has its first or its last letter: texts without them are most texts.
        may_end, may_begin = not self._last_letters.isdisjoint(head), not self._first_letters.isdisjoint(tail)
        before = self._joiner if may_end and any(read[:size] in self._ends for size in sizes) else ""
        after = self._joiner if may_begin and any(read[-size:] in self._beginnings for size in sizes) else ""
        return f"{before}{text}{after}" if before or after else text

    def may_begin_in(self, text: str) -> bool:
        """Whether the text has a letter with which a name begins."""
        return self._firsts is not None and self._firsts.search(self._normalized(text)) is not None

    def spelled(self, text: str) -> str:
        """The text, normalized if that matters, with a joiner behind each letter with which a name begins."""
        if self._firsts is None:
            return text
        return self._firsts.sub(lambda found: f"{found[0]}{self._joiner}", self._normalized(text))

    def removed_from(self, text: str) -> str:
        """The text without them, in time linear in its length."""
        plain = text if self._pattern.search(text) is None else self._without(text)
        read = self._normalized(plain)
        if read is text:
            return text
        return plain if self._pattern.search(read) is None else self._without(read)

    def _normalized(self, text: str) -> str:
        return text if self._normalizing is None else self._normalizing.of(text)

    def _without(self, text: str) -> str:
        kept = _Kept()
        at = 0
        while (found := self._pattern.search(text, at)) is not None:
            kept.append(text[at : found.start()])
            at = self._close(kept, text, found.end())
        kept.append(text[at:])
        return kept.text

    def _close(self, kept: _Kept, text: str, at: int) -> int:
        """Remove what the seam between `kept` and the text from `at` on has joined; returns where the rest begins."""
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
