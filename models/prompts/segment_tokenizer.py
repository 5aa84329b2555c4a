"""Tokenize a rendered conversation without tokenizing its older turns again.

A tokenizer cuts text at special tokens before it does anything else, so the text between two of them has the same token
ids in every prompt. Chat templates put such tokens between messages: of a growing conversation only the newest message
is new.

    <|user|>  Where is my order?  <|end|>  <|assistant|>  It arrives today.  <|end|>  <|user|>  Thanks!  <|end|>
    cached    cached              cached   cached         cached             cached   cached    new      cached

Some tokenizers treat the start of a text differently, or let a special token take part of its surroundings. For those,
`SegmentTokenizer` tokenizes every text as a whole; it finds out by comparing both ways.

The cache holds user text as token ids. It is bounded, lives in memory only, and is never read by content.
"""

from __future__ import annotations

import re
from array import array
from functools import lru_cache
from typing import Any

from tokenizers import Tokenizer

from models.prompts.forgery.names_pattern import names_pattern

SEGMENTS = 8192
LONGEST = 2000
"""Characters of a segment that is cached: the cache takes some 20 MB at most."""

_TRIALS = ("", "a", " a", "a ", "\n", "\n\n a\n", "12345", "Straße 12", "日本語", "🙂🙂", "a  b", "▁x", "\ta")


def ids_before(tokenizer: Any) -> tuple[int, ...]:
    """What transformers' tokenizer puts before every text, such as `<bos>`; what it adds behind one would end it."""
    for sample in filter(None, _TRIALS):
        bare: list[int] = tokenizer(sample, add_special_tokens=False)["input_ids"]
        whole: list[int] = tokenizer(sample)["input_ids"]
        for at in range(len(whole) if bare else 0):
            if whole[at : at + len(bare)] == bare:
                return tuple(whole[:at])
    return ()


class SegmentTokenizer:
    """Equal to `backend.encode(text, add_special_tokens=False).ids`."""

    def __init__(self, backend: Tokenizer) -> None:
        self._backend = backend
        added = backend.get_added_tokens_decoder()
        self._id_of = {token.content: number for number, token in added.items() if token.content}
        names = sorted(self._id_of, key=len, reverse=True)
        self._cut = re.compile(f"({names_pattern(names)})")
        self._cached = lru_cache(SEGMENTS)(self._encode)
        plain = all(not (one.lstrip or one.rstrip or one.single_word or one.normalized) for one in added.values())
        self.is_segmented = bool(names) and plain and self._agrees(names)

    def ids(self, text: str) -> list[int]:
        return self._by_segment(text) if self.is_segmented else list(self._encode(text))

    def _by_segment(self, text: str) -> list[int]:
        ids: list[int] = []
        for index, part in enumerate(self._cut.split(text)):
            if index % 2:
                ids.append(self._id_of[part])
            elif part:
                ids += self._encode(part) if len(part) > LONGEST else self._cached(part)
        return ids

    def _encode(self, text: str) -> array[int]:
        if len(text) <= LONGEST:
            return array("I", self._backend.encode(text, add_special_tokens=False).ids)
        # a batch, even of one text, is encoded without the GIL: a megabyte takes a second
        (encoded,) = self._backend.encode_batch_fast([text], add_special_tokens=False)
        return array("I", encoded.ids)

    def _agrees(self, names: list[str]) -> bool:
        texts = ["".join(trial + name for trial in _TRIALS) for name in names[:8]]
        texts += [name + trial for trial in _TRIALS for name in names[:2]] + [trial + names[0] for trial in _TRIALS]
        return all(self._by_segment(text) == list(self._encode(text)) for text in texts)
