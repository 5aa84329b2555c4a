r"""Regular expressions of JSON schemas (ECMA-262, and what Python and Rust write otherwise), as trees.

An expression is a character of a set, a sequence, a choice, a repetition, what is of several, or what is not of one.
The end of the text (`$`) is a character of its own behind the last one. What looks ahead is what is of two: of what
it says, and of all that follows it. Word boundaries, references to groups, and what looks back or looks ahead within a
repetition are not read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

LAST = 0x10FFFF
END = LAST + 1
"""The end of the text, as a character."""
Ranges = tuple[tuple[int, int], ...]
"""Characters from the first to the second of each pair, in order."""

_QUANTIFIER = re.compile(r"(?:([*+?])|\{(\d{1,4})(?:(,)(\d{0,4}))?\})(\??)", re.ASCII)
_AHEAD = re.compile(r"\(\?([=!])")
_GROUP = re.compile(r"\((?:\?:|\?P?<[A-Za-z_]\w*>|(?!\?))", re.ASCII)
_HEXADECIMAL = re.compile(r"x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|[xu]\{([0-9A-Fa-f]{1,6})\}|U([0-9A-Fa-f]{8})")
_CONTROLS = {"n": 10, "r": 13, "t": 9, "f": 12, "v": 11, "0": 0}
_DIGITS: Ranges = ((48, 57),)
_WORDS: Ranges = ((48, 57), (65, 90), (95, 95), (97, 122))
_SPACES: Ranges = (
    *((9, 13), (32, 32), (0xA0, 0xA0), (0x1680, 0x1680), (0x2000, 0x200A)),
    *((0x2028, 0x2029), (0x202F, 0x202F), (0x205F, 0x205F), (0x3000, 0x3000), (0xFEFF, 0xFEFF)),
)
_CLASSES = {"d": _DIGITS, "w": _WORDS, "s": _SPACES}


class UnreadableError(Exception):
    """The expression says more than which texts it matches, or cannot be read."""


@dataclass(frozen=True, slots=True)
class Chars:
    ranges: Ranges


@dataclass(frozen=True, slots=True)
class Sequence:
    parts: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    choices: frozenset[Expression]


@dataclass(frozen=True, slots=True)
class Repeated:
    part: Expression
    least: int
    most: int | None


@dataclass(frozen=True, slots=True)
class Both:
    """What is of each of them."""

    parts: frozenset[Expression]


@dataclass(frozen=True, slots=True)
class Not:
    part: Expression


@dataclass(frozen=True, slots=True)
class Ahead:
    """While an expression is read: what has to follow. Part of none that is read as a whole."""

    part: Expression
    is_negated: bool


Expression = Chars | Sequence | Choice | Repeated | Both | Not | Ahead
NOTHING = Chars(())
EMPTY = Sequence(())


def sequence(*parts: Expression) -> Expression:
    flat: list[Expression] = []
    for part in parts:
        if part == NOTHING:
            return NOTHING
        flat += part.parts if isinstance(part, Sequence) else [part]
    return flat[0] if len(flat) == 1 else Sequence(tuple(flat))


def choice(choices: Iterable[Expression]) -> Expression:
    flat: set[Expression] = set()
    for one in choices:
        flat |= one.choices if isinstance(one, Choice) else {one}
    flat.discard(NOTHING)
    if not flat:
        return NOTHING
    return flat.pop() if len(flat) == 1 else Choice(frozenset(flat))


def both(parts: Iterable[Expression]) -> Expression:
    flat: set[Expression] = set()
    for one in parts:
        flat |= one.parts if isinstance(one, Both) else {one}
    if NOTHING in flat:
        return NOTHING
    flat.discard(ANYTHING)
    if not flat:
        return ANYTHING
    return flat.pop() if len(flat) == 1 else Both(frozenset(flat))


def negated(part: Expression) -> Expression:
    return part.part if isinstance(part, Not) else Not(part)


def repeated(part: Expression, least: int, most: int | None) -> Expression:
    if (least, most) == (0, 1):
        return choice([EMPTY, part])
    if _looks_ahead(part):
        raise UnreadableError
    if most == 0 or part == EMPTY:
        return EMPTY
    return part if (least, most) == (1, 1) else Repeated(part, least, most)


ANYTHING = Repeated(Chars(((0, END),)), 0, None)


def united(ranges: Iterable[tuple[int, int]]) -> Ranges:
    found: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if found and first <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(last, found[-1][1]))
        else:
            found.append((first, last))
    return tuple(found)


def others(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """All other characters."""
    found, at = [], 0
    for first, last in united(ranges):
        if at < first:
            found.append((at, first - 1))
        at = last + 1
    return (*found, (at, LAST)) if at <= LAST else tuple(found)


def _looks_ahead(expression: Expression) -> bool:
    match expression:
        case Ahead():
            return True
        case Sequence(parts) | Choice(parts):
            return any(map(_looks_ahead, parts))
        case _:
            return False


def _followed(expression: Expression, rest: Expression) -> Expression:
    """The expression and what follows it, up to the end of the text, with what looks ahead as a part of that."""
    if not _looks_ahead(expression):
        return sequence(expression, rest)
    match expression:
        case Ahead(part, is_negated):
            ahead = _followed(part, ANYTHING)
            return both([negated(ahead) if is_negated else ahead, rest])
        case Sequence(parts):
            for part in reversed(parts):
                rest = _followed(part, rest)
            return rest
        case Choice(choices):
            return choice(_followed(one, rest) for one in choices)
        case _:
            raise UnreadableError


def found_in(pattern: str, *, begins: bool) -> Expression:
    """Texts, with their ends, of which `pattern` matches a part; `begins`: one at their beginning.

    Raises `UnreadableError`.
    """
    return _Reader(pattern).whole(begins=begins)


class _Reader:
    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._at = 0

    def whole(self, *, begins: bool) -> Expression:
        choices: list[Expression] = []
        while True:
            is_bound = self._takes("^") or self._takes(r"\A") or begins
            before = EMPTY if is_bound else Repeated(Chars(((0, LAST),)), 0, None)
            choices.append(sequence(before, _followed(self._sequence(is_first=is_bound), ANYTHING)))
            if not self._takes("|"):
                break
        if self._at < len(self._pattern):
            raise UnreadableError
        return choice(choices)

    def _takes(self, text: str) -> bool:
        found = self._pattern.startswith(text, self._at)
        self._at += len(text) * found
        return found

    def _closed(self, *, is_first: bool) -> Expression:
        """A choice, and the bracket behind it."""
        inner = self._choice(is_first=is_first)
        if not self._takes(")"):
            raise UnreadableError
        return inner

    def _choice(self, *, is_first: bool) -> Expression:
        choices = [self._sequence(is_first=is_first)]
        while self._takes("|"):
            choices.append(self._sequence(is_first=is_first))
        return choice(choices)

    def _sequence(self, *, is_first: bool) -> Expression:
        """`is_first`: nothing of the text stands before it, so that `^` says nothing."""
        parts: list[Expression] = []
        while self._at < len(self._pattern) and self._pattern[self._at] not in "|)":
            at_begin = is_first and all(isinstance(part, Ahead) for part in parts)
            if at_begin and (self._takes("^") or self._takes(r"\A")):
                continue
            parts.append(self._quantified(self._atom(is_first=at_begin)))
        return sequence(*parts)

    def _quantified(self, part: Expression) -> Expression:
        found = _QUANTIFIER.match(self._pattern, self._at)
        if found is None:
            return part
        self._at = found.end()
        if self._pattern.startswith("+", self._at) or part == Chars(((END, END),)):
            raise UnreadableError
        sign, least, comma, most = found[1], found[2], found[3], found[4]
        if sign:
            return repeated(part, int(sign == "+"), 1 if sign == "?" else None)
        return repeated(part, int(least), (int(most) if most else None) if comma else int(least))

    def _atom(self, *, is_first: bool) -> Expression:
        if ahead := _AHEAD.match(self._pattern, self._at):
            self._at = ahead.end()
            return Ahead(self._closed(is_first=is_first), is_negated=ahead[1] == "!")
        if group := _GROUP.match(self._pattern, self._at):
            self._at = group.end()
            return self._closed(is_first=is_first)
        character = self._pattern[self._at]
        self._at += 1
        if character == "[":
            return Chars(self._class())
        if character == "\\":
            ending = self._pattern[self._at : self._at + 1] in {"Z", "z"}
            self._at += ending
            return Chars(((END, END),)) if ending else Chars(self._escape())
        if character in "^*+?()":
            raise UnreadableError
        known = {"$": ((END, END),), ".": others([(10, 10)])}
        return Chars(known.get(character, ((ord(character), ord(character)),)))

    def _escape(self) -> Ranges:
        if found := _HEXADECIMAL.match(self._pattern, self._at):
            self._at = found.end()
            code = int(next(filter(None, found.groups())), 16)
            return ((code, code),)
        letter = self._pattern[self._at : self._at + 1]
        self._at += 1
        if letter.lower() in _CLASSES:
            known = _CLASSES[letter.lower()]
            return known if letter.islower() else others(known)
        if letter not in _CONTROLS and (not letter or (letter.isascii() and letter.isalnum())):
            raise UnreadableError
        code = _CONTROLS.get(letter, ord(letter))
        return ((code, code),)

    def _class(self) -> Ranges:
        is_negated = self._takes("^")
        found: list[tuple[int, int]] = []
        while not self._takes("]"):
            first = self._member()
            if self._pattern.startswith("-", self._at) and not self._pattern.startswith("-]", self._at):
                self._at += 1
                last = self._member()
                if not (_is_one(first) and _is_one(last) and first[0][0] <= last[0][0]):
                    raise UnreadableError
                first = ((first[0][0], last[0][0]),)
            found += first
        return others(found) if is_negated else united(found)

    def _member(self) -> Ranges:
        if self._at >= len(self._pattern):
            raise UnreadableError
        character = self._pattern[self._at]
        self._at += 1
        return self._escape() if character == "\\" else ((ord(character), ord(character)),)


def _is_one(ranges: Ranges) -> bool:
    return len(ranges) == 1 and ranges[0][0] == ranges[0][1]
