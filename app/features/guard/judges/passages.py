"""Cut a text into passages. In a long text, a judge that averages would miss an insult of four words."""

from __future__ import annotations

import re
from collections.abc import Iterator

_LONGEST = 240
_SHORT = 40
"""Characters: a shorter sentence shares its passage with the next one."""
_SENTENCE = re.compile(rf"[^.!?\n]{{1,{_LONGEST}}}(?:[.!?\n]+|(?<=\s)|$)|[^.!?\n]{{1,{_LONGEST}}}|[.!?\n]+")


def passages_of(text: str) -> Iterator[str]:
    """A sentence, short sentences that follow each other, or a part of a long sentence. Together they are the text."""
    passage = ""
    for sentence in _SENTENCE.finditer(text):
        if passage and len(passage) + len(sentence[0]) > _LONGEST:
            yield passage
            passage = ""
        passage += sentence[0]
        if sentence[0].endswith((".", "!", "?", "\n")) and len(passage) > _SHORT:
            yield passage
            passage = ""
    if passage.strip():
        yield passage
