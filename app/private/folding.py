"""Texts without what does not change who is meant: case, width and composition of letters, and signs of no width.

`Nina Hara`, `NINA HARA`, `ＮＩＮＡ ＨＡＲＡ` and a composed or decomposed `é` are the same name; so are `Straße` and
`STRASSE`, and Turkish `İ` and `ı` are an `i`.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

_DOT_ABOVE = "\u0307"
_I = str.maketrans({"ı": "i", "İ": "i"})


@dataclass(frozen=True, slots=True)
class Folded:
    """`starts` has the place in the text of each letter, and the text's length; None if they are the same."""

    text: str
    starts: Sequence[int] | None = None

    def span(self, begin: int, end: int) -> tuple[int, int] | None:
        """The place in the text; None if it begins or ends within a letter."""
        starts = self.starts
        if starts is None:
            return begin, end
        if (begin and starts[begin] == starts[begin - 1]) or starts[end] == starts[end - 1]:
            return None
        return starts[begin], starts[end]


def folded(text: str) -> Folded:
    if text.isascii():
        return Folded(text.lower())
    letters = [_letter(one) for one in text]
    starts = [at for at, letter in enumerate(letters) for _ in letter]
    return Folded("".join(letters), [*starts, len(text)])


@lru_cache(4096)
def _letter(character: str) -> str:
    if unicodedata.category(character) == "Cf":
        return ""
    whole = unicodedata.normalize("NFKD", character.translate(_I)).casefold()
    return unicodedata.normalize("NFKD", whole).replace(_DOT_ABOVE, "")
