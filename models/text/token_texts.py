r"""The texts of single tokens, as log probabilities name them.

A token's text is what it adds to a text before it: the space of a SentencePiece token belongs to it. A token that ends
or begins within a character has no text, so its name is its bytes, in OpenAI's form: `bytes:\xe2\x9f`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from models.interface.generation import Delta, Job
from models.text.detokenizer import AnswerText, Vocabulary

_NAMED = re.compile(r"bytes:((?:\\x[0-9a-f]{2})+)")
_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_FIRST_OF_SEVERAL = 0x80


def name_of(piece: bytes) -> str:
    """The text of these bytes, or their name if they are not whole characters."""
    try:
        return piece.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in piece)


def bytes_of(name: str) -> bytes:
    """The bytes of a token that has this text or name."""
    named = _NAMED.fullmatch(name)
    return name.encode() if named is None else bytes.fromhex(named[1].replace("\\x", ""))


def highest_id(tokenizer: Any) -> int:
    """Of one of the tokenizers package; -1 without tokens. Ids may have holes; the dictionary of all takes 50 MB for
    262,144 tokens, and twice the time.
    """
    count = tokenizer.get_vocab_size(with_added_tokens=True)
    if None not in map(tokenizer.id_to_token, range(count)):
        return int(count - 1)
    return max(tokenizer.get_vocab(with_added_tokens=True).values(), default=-1)


class TokenTexts:
    """The texts of one tokenizer's tokens. Special tokens have their names, though an answer's text has nothing of
    them.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._vocabulary = vocabulary = Vocabulary(tokenizer)
        self._tokenizer = vocabulary.tokenizer
        self._pieces = vocabulary.pieces
        added = self._tokenizer.get_added_tokens_decoder()
        self._special = {number: token.content for number, token in added.items() if token.special}
        self._anchor = self._tokenizer.encode("a", add_special_tokens=False).ids[-1:]
        self._before = self._tokenizer.decode(self._anchor)
        self._known: dict[tuple[int, bool], str] = {}

    @property
    def special(self) -> frozenset[int]:
        return frozenset(self._special)

    def beginning(self, job: Job, ids: Sequence[int]) -> Delta:
        """What readers get of these tokens as the beginning of the job's answer."""
        text = AnswerText.of(self._vocabulary, job)
        parts = [text.step(token) for token in ids]
        calls = tuple(call for part in parts for call in part.calls)
        written, reasoning = "".join(part.text for part in parts), "".join(part.reasoning for part in parts)
        return Delta(0, tuple(ids), written, calls=calls, reasoning=reasoning)

    def __call__(self, token: int, *, begins: bool = False) -> str:
        """`begins`: the token is a text's first one, which some decoders give without its space."""
        known = self._known.get((token, begins))
        if known is None:
            known = self._known[token, begins] = self._text(token, begins=begins)
        return known

    def _text(self, token: int, *, begins: bool) -> str:
        if token in self._special:
            return self._special[token]
        if self._pieces:
            return name_of(self._pieces[token]) if token < len(self._pieces) else ""
        alone: str = self._tokenizer.decode([token])
        piece = self._tokenizer.id_to_token(token) or ""
        if (byte := _BYTE_TOKEN.fullmatch(piece)) and alone != piece and int(byte[1], 16) >= _FIRST_OF_SEVERAL:
            return name_of(bytes([int(byte[1], 16)]))
        behind: str = self._tokenizer.decode([*self._anchor, token])
        return alone if begins or not behind.startswith(self._before) else behind[len(self._before) :]
