"""Where known values stand in a text.

Compiling a pattern of some hundred values takes twenty milliseconds, and a mask is made for each request. Searching for
each value by itself needs no preparation, and is not slower.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

_SHORT = 4


def occurrences(text: str, values: Iterable[str], kept: Iterable[str] = ()) -> Iterator[tuple[int, int]]:
    """The places (begin, end) of the values, from left to right, without overlaps; of two that begin at one place, the
    longer one.

    A value begins at the beginning of a word. One that ends in a digit, or is short, also ends at the end of one, so
    that `Al` does not hide a part of `Also`. What is `kept` is skipped, with all values in it.
    """
    found = [(begin, -(begin + len(value)), False) for value in values for begin in _places(text, value)]
    if not found:
        return
    found += [(begin, -(begin + len(one)), True) for one in kept for begin in _starts(text, one)]
    at = 0
    for begin, negative_end, is_kept in sorted(found):
        if begin >= at:
            at = -negative_end
            if not is_kept:
                yield begin, at


def _places(text: str, value: str) -> Iterator[int]:
    for begin in _starts(text, value):
        end = begin + len(value)
        if begin and _is_word(text[begin - 1]):
            continue
        if end < len(text):
            if value[-1].isdigit():
                if text[end].isdigit() and text[end].isascii():
                    continue
            elif len(value) < _SHORT and _is_word(text[end]):
                continue
        yield begin


def _starts(text: str, part: str) -> Iterator[int]:
    begin = text.find(part)
    while begin >= 0:
        yield begin
        begin = text.find(part, begin + 1)


def _is_word(letter: str) -> bool:
    return letter.isascii() and letter.isalnum()
