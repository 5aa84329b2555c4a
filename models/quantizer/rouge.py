"""ROUGE-L (Lin 2004): how much two texts have in common, by their longest common subsequence of words."""

from __future__ import annotations

import re

from rapidfuzz.distance import LCSseq

MOST_WORDS = 4096
"""Of each text. The time grows with the product of both: this is some milliseconds."""
_MOST_CHARACTERS = 16 * MOST_WORDS
_WORD = re.compile(r"\w+")


def rouge_l(one: str, other: str) -> float:
    """The F1, from 0 to 1, of the first `MOST_WORDS` words of each."""
    ours, theirs = _words(one), _words(other)
    if not ours and not theirs:
        return 1.0
    return 2 * LCSseq.similarity(ours, theirs) / (len(ours) + len(theirs))


def _words(text: str) -> list[str]:
    return _WORD.findall(text[:_MOST_CHARACTERS].casefold())[:MOST_WORDS]
