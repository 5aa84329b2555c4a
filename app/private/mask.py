r"""Replace private values by placeholders, and placeholders by values.

A placeholder is `<KIND_TAG>`, for example `<EMAIL_ADDRESS_7KQ2M9XA>`. Its tag is 40 bits of HMAC-SHA256 over user, kind
and value, in Crockford's base32. The key is a secret of the service, so equal values of a user have equal placeholders
in all conversations, other users' differ, and a tag does not allow guesses at its value. A mask recognizes its own
placeholders alone: text that imitates one is text.

`hide` and `put_back` are inverse: each written form of a value, in other case or width too (folding.py), has a
placeholder of its own. Models change what they
copy, so `put_back` also accepts other case, missing brackets, `-`, a space or `\_` for `_`, and `&lt;` for `<`.
Letters that the model appends (`<PERSON_7KQ2M9XA>s`) follow the value.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, TypeVar

import regex

from app.private.addresses import Addresses
from app.private.folding import folded
from app.private.json_text import is_json, with_parts
from app.private.value import PrivateValue

_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_TAG_LENGTH = 8
_TAG = f"[{_ALPHABET}]{{{_TAG_LENGTH}}}"
_PLACEHOLDER = re.compile(f"<[A-Z_]{{1,32}}_{_TAG}>")
_SEPARATOR = re.compile(r"\\?[_\- ]")
_WORD = re.compile("[A-Za-z0-9_]")
_LONG = 2048
_CLOSINGS = ("\\>", "&gt;")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Scan:
    """Where placeholders are in a text that is still being written: the complete ones, and where the part begins that
    may become one.
    """

    complete: tuple[tuple[int, int], ...]
    open_from: int

    def allows_cut(self, at: int) -> bool:
        """Whether the text up to there can be read by itself."""
        return at <= self.open_from and not any(start < at < end for start, end in self.complete)


class Mask:
    """The placeholders of these values of one user. What it has read of a long text it remembers, so that a thread can
    read it before the event loop does.
    """

    def __init__(self, secret: bytes, user_id: str, values: Iterable[PrivateValue]) -> None:
        self.values = tuple(dict.fromkeys(values))
        self._values: dict[str, str] = {}
        self._placeholders: dict[str, str] = {}
        for one in self.values:
            if one.value not in self._placeholders:
                name = _name(secret, user_id, one)
                self._placeholders[one.value] = f"<{name}>"
                self._values[name] = one.value
        self._bases: dict[str, list[PrivateValue]] = {}  # by what is common to their forms
        for one in self.values:
            self._bases.setdefault(folded(one.value).text, []).append(one)
        self._secret, self._user_id = secret, user_id
        self._kinds = tuple(sorted({one.kind for one in self.values}))
        self._has_forms = False
        self._hidden: dict[str, str] = {}
        self._hidden_json: dict[str, str] = {}
        self._known: dict[str, frozenset[str]] = {}

    def __bool__(self) -> bool:
        return bool(self._values)

    @cached_property
    def _occurrences(self) -> Occurrences:
        return Occurrences(self._bases)

    @property
    def _written(self) -> regex.Pattern[str]:
        return _written_pattern(self._kinds)

    def hide(self, text: str) -> str:
        """The text with placeholders instead of the values."""
        return _remembered(self._hidden, text, self._hide) if self and text else text

    def _hide(self, text: str) -> str:
        parts: list[str] = []
        at = 0
        kept = (match.span() for match in _PLACEHOLDER.finditer(text) if self._is_known(match[0][1:-1]))
        for begin, end in self._occurrences.in_text(text, kept):
            parts += (text[at:begin], self._placeholder_of(text[begin:end]))
            at = end
        return "".join((*parts, text[at:]))

    def _placeholder_of(self, written: str) -> str:
        if written not in self._placeholders:
            (base, *_) = self._bases[folded(written).text]
            self._add_form(PrivateValue(base.kind, written))
        return self._placeholders[written]

    def _add_form(self, form: PrivateValue) -> None:
        name = _name(self._secret, self._user_id, form)
        self._values[name] = form.value
        self._placeholders[form.value] = f"<{name}>"

    def _is_known(self, name: str) -> bool:
        """Whether it is a placeholder of a value, or of a form that this mask may not have met."""
        if name not in self._values and not self._has_forms:
            self._has_forms = True
            for one in self.values:
                value = one.value
                for written in {value.upper(), value.lower(), value.title(), value.casefold()} - {value}:
                    if written not in self._placeholders:
                        self._add_form(PrivateValue(one.kind, written))
        return name in self._values

    def hide_json(self, text: str) -> str:
        """The same for the strings, names and numbers of JSON text; text that is no JSON is treated as text."""
        return _remembered(self._hidden_json, text, self._hide_json) if self and text else text

    def _hide_json(self, text: str) -> str:
        return with_parts(text, self.hide) if is_json(text) else self.hide(text)

    def values_in(self, texts: Sequence[str]) -> frozenset[str]:
        """The values that stand in these texts, also those that are a part of others."""
        return frozenset().union(*(_remembered(self._known, text, self._values_in) for text in texts))

    def _values_in(self, text: str) -> frozenset[str]:
        found = {text[begin:end] for begin, end in self._occurrences.all_in(text)}
        known = {one.value for one in self.values}
        bases = (one.value for written in found - known for one in self._bases[folded(written).text])
        return frozenset((found & known).union(bases))

    def put_back(self, text: str) -> str:
        """The text with the values instead of their placeholders."""
        return "".join(self._parts(text, "", self._value_of)) if self else text

    def shown(self, text: str, addresses: Addresses, *, is_cut: bool = False) -> str:
        """The same for a part of an answer that people read: within addresses, placeholders stay. `addresses` has read
        what is shown before it, and reads on. `is_cut`: the answer ends there, and half a placeholder is dropped.
        """
        if not self:
            return text

        def value_of(match: regex.Match[str]) -> str | None:
            return None if addresses.is_within else self._value_of(match)

        parts: list[str] = []
        for part in self._parts(text, addresses.tail, value_of, is_cut=is_cut):
            addresses.read(part)
            parts.append(part)
        return "".join(parts)

    def put_back_json(self, text: str, before: str = "") -> str:
        """The same for a part of JSON text, where values stand in strings. `before`: what is shown before it."""

        def value_of(match: regex.Match[str]) -> str | None:
            value = self._value_of(match)
            return value and json.dumps(value, ensure_ascii=False)[1:-1]

        return "".join(self._parts(text, before, value_of)) if self else text

    def _parts(
        self, text: str, before: str, value_of: Callable[[regex.Match[str]], str | None], *, is_cut: bool = False
    ) -> Iterator[str]:
        """The text with values, part by part. `value_of` is asked when the reader has all parts before the value."""
        at = 0
        while (match := self._next_written(text, at, before, partial=is_cut)) is not None:
            yield text[at : match.start()]
            if is_cut and _is_open(match):
                return
            value = value_of(match)
            before, at = match[0] if value is None else value, match.end()
            yield before
        yield text[at:]

    def _next_written(self, text: str, at: int, before: str, *, partial: bool) -> regex.Match[str] | None:
        """The next written placeholder from `at` on, which readers have as `before`. A name without a bracket is none
        behind a letter that they see: so it does not matter in which pieces the text comes.
        """
        begin = at
        while (match := self._written.search(text, begin, partial=partial)) is not None:
            start = match.start()
            behind = text[start - 1 : start] if start > at else before[-1:]
            if match[0].startswith(("<", "&")) or start == len(text) or not _WORD.match(behind):
                return match
            begin = start + 1
        return None

    def _value_of(self, match: regex.Match[str]) -> str | None:
        """The value of a written placeholder; None for one that is not of this mask."""
        name = _SEPARATOR.sub("_", match["name"]).upper()
        return self._values[name] if self._is_known(name) else None

    def scan(self, text: str, before: str = "") -> Scan:
        """Find the placeholders in a text that is still being written; `before` is what is shown before it."""
        if not self:
            return Scan((), len(text))
        complete: list[tuple[int, int]] = []
        at = 0
        while (match := self._next_written(text, at, before, partial=True)) is not None:
            if _is_open(match):
                return Scan(tuple(complete), match.start())
            complete.append(match.span())
            before, at = "", match.end()  # behind a value, a name may be a placeholder or none
        return Scan(tuple(complete), len(text))


NO_MASK = Mask(b"", "", ())


def _is_open(match: regex.Match[str]) -> bool:
    """Whether a written placeholder may go on behind the text."""
    if match.partial:
        return True
    rest = match.string[match.end() :]
    return not match[0].endswith((">", "&gt;")) and any(closing.startswith(rest) for closing in _CLOSINGS)


def _remembered(known: dict[str, T], text: str, read: Callable[[str], T]) -> T:
    if len(text) < _LONG:
        return read(text)
    if text not in known:
        known[text] = read(text)
    return known[text]


def in_strings(value: Any, change: Callable[[str], str]) -> Any:
    """A value of JSON with all its strings changed, but for the names of properties."""
    match value:
        case str():
            return change(value)
        case list():
            return [in_strings(one, change) for one in value]
        case dict():
            return {name: in_strings(one, change) for name, one in value.items()}
    return value


def _name(secret: bytes, user_id: str, one: PrivateValue) -> str:
    return f"{one.kind}_{_tag(secret, user_id, one)}"


def _tag(secret: bytes, user_id: str, one: PrivateValue) -> str:
    digest = hmac.digest(secret, json.dumps([user_id, one.kind, one.value]).encode(), hashlib.sha256)
    number = int.from_bytes(digest[:5])
    return "".join(_ALPHABET[number >> 5 * digit & 31] for digit in range(_TAG_LENGTH))


@lru_cache(64)
def _written_pattern(kinds: tuple[str, ...]) -> regex.Pattern[str]:
    """ASCII: without it, `IGNORECASE` lets K match U+212A, and S U+017F."""
    separator = r"\\?[_\- ]"
    names = "|".join(separator.join(map(regex.escape, kind.split("_"))) for kind in kinds)
    return regex.compile(
        rf"(?:<|&lt;)?(?P<name>(?:{names}){separator}{_TAG})(?:\\?>|&gt;)?",
        regex.IGNORECASE | regex.ASCII,
    )


_SHORT = 4


class Occurrences:
    """Where known values stand in a text in any form: in one pass (Aho and Corasick, 1975).

    The time is linear in the text, however many values there are and whatever they have in common: both come from
    users. From the automaton's root, a search jumps to the next letter with which a value may begin, so that ordinary
    text costs little. It is Python throughout, so other threads run in between.

    A value begins at the beginning of a word. One that ends in a digit, or is short, also ends at the end of one, so
    that `Al` does not hide a part of `Also`.
    """

    def __init__(self, values: Iterable[str]) -> None:
        self._steps: list[dict[str, int]] = [{}]
        self._lengths = [0]  # of the value that ends in a state
        for value in values:
            self._add(folded(value).text)
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
        """All spans (begin, end), also those that overlap."""
        whole = folded(text)
        for begin, end in self._all_in_folded(whole.text):
            if (span := whole.span(begin, end)) is not None:
                yield span

    def _all_in_folded(self, text: str) -> Iterator[tuple[int, int]]:
        steps, back, lengths = self._steps, self._back, self._lengths
        state = at = 0
        while at < len(text):
            if not state:
                match = self._begin.search(text, at)
                if match is None:
                    return
                at = match.start()
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
        """The spans from left to right, without overlaps; of two that begin at one position, the longer one.
        What is `kept` is skipped, with all values in it.
        """
        spans = [(begin, -end, False) for begin, end in self.all_in(text)]
        if not spans:
            return
        spans += [(begin, -end, True) for begin, end in kept]
        at = 0
        for begin, negative_end, is_kept in sorted(spans):
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
