"""Where known values stand in a text: all of them in one pass (Aho and Corasick, 1975).

The time is linear in the text, however many values there are and whatever they have in common: both come from users.
From the automaton's root, a search jumps to the next letter with which a value may begin, so that ordinary text costs
little. It is Python throughout, so other threads run in between.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator

_SHORT = 4


class Occurrences:
    """A value begins at the beginning of a word. One that ends in a digit, or is short, also ends at the end of one, so
    that `Al` does not hide a part of `Also`.
    """

    def __init__(self, values: Iterable[str]) -> None:
        self._steps: list[dict[str, int]] = [{}]
        self._lengths = [0]  # of the value that ends in a state
        for value in values:
            self._add(value)
        self._back = [0] * len(self._steps)  # the state of the longest proper suffix
        self._shorter = [0] * len(self._steps)  # the next such state in which a value ends
        self._link()
        firsts = re.escape("".join(sorted(self._steps[0])))
        # The letter before the look-behind: the search for a letter of a set is six times as fast.
        self._begin = re.compile(rf"[{firsts}](?<![A-Za-z0-9].)" if firsts else r"(?!)", re.DOTALL)

    def _add(self, value: str) -> None:
        state = 0
        for letter in value:
            following = self._steps[state].get(letter)
            if following is None:
                following = self._steps[state][letter] = len(self._steps)
                self._steps.append({})
                self._lengths.append(0)
            state = following
        self._lengths[state] = len(value)

    def _link(self) -> None:
        waiting = deque(self._steps[0].values())
        while waiting:
            state = waiting.popleft()
            for letter, following in self._steps[state].items():
                back = self._back[state]
                while back and letter not in self._steps[back]:
                    back = self._back[back]
                back = self._back[following] = self._steps[back].get(letter, 0)
                self._shorter[following] = back if self._lengths[back] else self._shorter[back]
                waiting.append(following)

    def all_in(self, text: str) -> Iterator[tuple[int, int]]:
        """All places (begin, end), also those that overlap."""
        steps, back, lengths = self._steps, self._back, self._lengths
        state = at = 0
        while at < len(text):
            if not state:
                found = self._begin.search(text, at)
                if found is None:
                    return
                at = found.start()
            letter = text[at]
            while (following := steps[state].get(letter)) is None and state:
                state = back[state]
            state = following or 0
            at += 1
            ending = state if lengths[state] else self._shorter[state]
            while ending:
                if _is_whole(text, at - lengths[ending], at):
                    yield at - lengths[ending], at
                ending = self._shorter[ending]

    def in_text(self, text: str, kept: Iterable[tuple[int, int]] = ()) -> Iterator[tuple[int, int]]:
        """The places (begin, end) from left to right, without overlaps; of two that begin at one place, the longer one.
        What is `kept` is skipped, with all values in it.
        """
        found = [(begin, -end, False) for begin, end in self.all_in(text)]
        if not found:
            return
        found += [(begin, -end, True) for begin, end in kept]
        at = 0
        for begin, negative_end, is_kept in sorted(found):
            if begin >= at:
                at = -negative_end
                if not is_kept:
                    yield begin, at


def _is_whole(text: str, begin: int, end: int) -> bool:
    if begin and _is_word(text[begin - 1]):
        return False
    if end == len(text):
        return True
    if text[end - 1].isdigit():
        return not (text[end].isdigit() and text[end].isascii())
    return end - begin >= _SHORT or not _is_word(text[end])


def _is_word(letter: str) -> bool:
    return letter.isascii() and letter.isalnum()
