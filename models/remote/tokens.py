"""The tokens of an outside model's answers, as they are in the log.

A token below 256 is a byte of the text's UTF-8. A server that tells its token ids (vLLM 0.11 and later) has those,
raised by 256: a successor gives them back to the server as they are, so that no word is cut anew. An answer has bytes
first, if another model has begun it, and then ids.
"""

from __future__ import annotations

from collections.abc import Sequence

BYTES = 256
BYTES_PER_TOKEN = 4
"""An estimate: how many tokens of the server a text had is not known."""


def count_of(tokens: Sequence[int]) -> int:
    """About how many tokens of the server these are; exact for ids."""
    ids = sum(token >= BYTES for token in tokens)
    return ids + (len(tokens) - ids) // BYTES_PER_TOKEN


def begun_and_ids(tokens: Sequence[int]) -> tuple[str, list[int]]:
    """The text that an answer begins with, and the server's ids of what follows it."""
    first = next((at for at, token in enumerate(tokens) if token >= BYTES), len(tokens))
    return bytes(tokens[:first]).decode(errors="replace"), [token - BYTES for token in tokens[first:]]


def text_of(token: int, *, begins: bool = False) -> str:  # noqa: ARG001 - no space depends on it
    """What is known of a single token."""
    return bytes([token]).decode(errors="replace") if token < BYTES else ""
