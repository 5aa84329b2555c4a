"""Words that say nothing about what is looked for.

Milvus's BM25 counts them like others: in a history of some hundred rows "not" and "that" are rare enough to lift a row
above those that mean what was asked. The index keeps them, because collections exist; a query leaves them out.
"""

from __future__ import annotations

import re

_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)?")
_ENGLISH = (
    "a about after all also am an and any are as at be because been before being but by can could did do does doing "
    "don't for from had has have having he her here hers him his how i i'm if in into is isn't it it's its just me "
    "more most my no nor not of on only or our ours out over own same she should so some such than that that's the "
    "their theirs them then there these they this those through to too under until up very was we were what when "
    "where which while who whom why will with would you your yours"
)
_STOP_WORDS = frozenset(_ENGLISH.split(" "))


def without_stop_words(text: str) -> str:
    """The other words of an English text; the text itself if it has no other."""
    words = [word for word in _WORD.findall(text) if word.lower().replace("’", "'") not in _STOP_WORDS]
    return " ".join(words) or text
