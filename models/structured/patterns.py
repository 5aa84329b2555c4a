r"""Patterns of JSON schemas, which are ECMA-262's and Python's, in the dialect of llguidance, which is Rust's.

A text has to match each of the patterns that come of one. What looks ahead at the beginning, or back at the end, says
what the whole text is, or with which character it does not begin or end: `^(?=.*\d)(?!-).+(?<!-)$` is four patterns.
Any other pattern that looks around stays as it is, and is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import pairwise

LONGEST = 2000
_IN_LARK = re.compile(r"\\.|/|\n", re.DOTALL)
MOST_AHEAD = 8
_PART = re.compile(r"\\[pP]\{[^}]*\}|\\[uU]\{?[0-9A-Fa-f]+\}?|\\.|\(\?(?:<?[=!]|:|P?<\w+>)|.", re.DOTALL)
_QUANTIFIER = re.compile(r"\{\d+(,\d*)?\}", re.ASCII)
_UP_TO = re.compile(r"\{,\d+\}", re.ASCII)
_LOOKS_BACK = re.compile(r"\(\?<[=!]")
_CHARACTER = re.compile(r"\[.+\]|\\[dDwWsS\W]|[^\\.^$*+?{}()|\[\]]", re.DOTALL)
_PYTHON = {r"\Z": "$", r"\z": "$", r"\A": "^"}
_OPERATORS = frozenset("&~-")
"""Two of them are an operator in Rust's sets of characters."""


@lru_cache(maxsize=256)
def patterns(pattern: str) -> tuple[str, ...]:
    """All of them hold where the pattern does, and only there."""
    found = _without_looking(pattern)
    return tuple(map(_in_rust, (pattern,) if found is None else found))


def whole(pattern: str) -> str:
    """The pattern of whole texts in Rust's dialect, which looks around nowhere."""
    return _in_rust(pattern)


def exactly(text: str) -> str:
    """The pattern of this text alone, in any dialect and on one line."""
    return "".join(one if one.isalnum() else re.escape(one) if one.isprintable() else _by_number(one) for one in text)


def _by_number(character: str) -> str:
    code = ord(character)
    return rf"\x{code:02x}" if code < 256 else rf"\u{code:04x}" if code < 65536 else character


def terminal(pattern: str) -> str:
    """The pattern as a terminal of Lark. An escaped slash or line break stays as it is."""
    return f"/{_IN_LARK.sub(_in_lark, pattern)}/"


def _in_lark(found: re.Match[str]) -> str:
    match found[0]:
        case "/":
            return r"\/"
        case "\n" | "\\\n":
            return r"\n"
        case as_it_is:
            return as_it_is


def choices_of(pattern: str) -> list[str]:
    """The patterns between the bars that stand in no bracket."""
    bars = [at for at, part, depth in _nested(pattern) if part == "|" and not depth]
    return [pattern[first + 1 : last] for first, last in pairwise([-1, *bars, len(pattern)])]


def looks_around(pattern: str) -> bool:
    return any(part in {"(?=", "(?!", "(?<=", "(?<!"} for _, part in _parts(pattern))


def _without_looking(pattern: str) -> list[str] | None:
    """None if nothing looks around, or not where it can be said otherwise."""
    if not looks_around(pattern):
        return None
    split = _split(pattern)
    return None if split is None or any(map(looks_around, split)) else split


def _split(pattern: str) -> list[str] | None:
    """The pattern without what looks ahead at its beginning and back at its end, and that for itself."""
    if not pattern.startswith("^") or len(pattern) > LONGEST:
        return None
    found: list[str | None] = []
    rest = pattern[1:]
    while rest.startswith(("(?=", "(?!")) and len(found) < MOST_AHEAD and (end := _closing(rest)):
        inner = rest[3:end]
        found.append(_bound(inner) if rest[2] == "=" else _unlike(inner))
        rest = rest[end + 1 :]
    at = max((at.start() for at in _LOOKS_BACK.finditer(rest)), default=-1)
    if at >= 0 and _closing(rest[at:], "$"):
        inner = rest[at + 4 : -2]
        found.append(f"(?:{inner})$" if rest[at + 3] == "=" else _unlike_the_last(inner))
        rest = f"{rest[:at]}$"
    if not found or None in found or _has_choice(rest):
        return None
    whole = [f"^{rest}"] if rest else []
    return [*whole, *(one for one in found if one is not None)]


def _bound(pattern: str) -> str:
    """The pattern at the beginning of a text."""
    if _has_choice(pattern):
        return f"^(?:{pattern})"
    return f"^{pattern.removeprefix('^')}"


def _unlike(pattern: str) -> str | None:
    """The pattern of texts that do not begin with a character of `pattern`, or are not all of such characters."""
    is_whole = pattern.endswith(("*$", "+$"))
    others = _other_characters(pattern.removeprefix("^")[:-2] if is_whole else pattern)
    if others is None:
        return None
    if not is_whole:
        return f"^{others}|^$"
    return others if pattern.endswith("*$") else f"^$|{others}"


def _unlike_the_last(pattern: str) -> str | None:
    others = _other_characters(pattern)
    return None if others is None else f"^$|{others}$"


def _other_characters(pattern: str) -> str | None:
    """The set of all characters but those of `pattern`, which is one character or one set of them."""
    parts = [part for _, part in _parts(pattern)]
    if len(parts) != 1 or parts[0].startswith("[^^") or not _CHARACTER.fullmatch(parts[0]):
        return None
    return f"[{parts[0][2:]}" if parts[0].startswith("[^") else f"[^{parts[0].removeprefix('[').removesuffix(']')}]"


def _parts(pattern: str) -> Iterator[tuple[int, str]]:
    """The parts of a pattern, each with its place; a set of characters is one."""
    at = 0
    while at < len(pattern):
        end = _end_of_set(pattern, at) if pattern[at] == "[" else None
        if end is None:
            match = _PART.match(pattern, at)
            assert match is not None
            end = match.end()
        yield at, pattern[at:end]
        at = end


def _end_of_set(pattern: str, at: int) -> int | None:
    at += 2 if pattern.startswith("[^", at) else 1
    while at < len(pattern) and pattern[at] != "]":
        at += 2 if pattern[at] == "\\" else 1
    return at + 1 if at < len(pattern) else None


def _nested(pattern: str) -> Iterator[tuple[int, str, int]]:
    """The parts, with their places and how many brackets are open behind them."""
    depth = 0
    for at, part in _parts(pattern):
        depth += part.startswith("(") - (part == ")")
        yield at, part, depth


def _closing(pattern: str, rest: str = "") -> int | None:
    """The place of the bracket that closes the first one; None unless `rest`, if given, is all that follows."""
    at = next((at for at, _, depth in _nested(pattern) if not depth), None)
    return at if at is not None and (not rest or pattern[at + 1 :] == rest) else None


def _has_choice(pattern: str) -> bool:
    return len(choices_of(pattern)) > 1


def _in_rust(pattern: str) -> str:
    written = []
    for at, part in _parts(pattern):
        if part.startswith("[") and len(part) > 1:
            written.append(_set_in_rust(part))
        elif part == "{" and not _QUANTIFIER.match(pattern, at):
            written.append("{0" if _UP_TO.match(pattern, at) else r"\{")
        else:
            written.append(_PYTHON.get(part, part))
    return "".join(written)


def _set_in_rust(written: str) -> str:
    """Brackets, and two of an operator, are characters of a set in ECMA-262 and in Python."""
    if written == "[^]":
        return r"[\s\S]"
    begin = 2 if written.startswith("[^") else 1
    made, last = [written[:begin]], ""
    for part in _PART.findall(written[begin:-1]):
        twice = part in _OPERATORS and part == last
        if twice and part == "-" and len(made) == 2:
            made[-1:] = [r"\-", part]  # the first of a range
        else:
            made.append(f"\\{part}" if part == "[" or twice else part)
        last = "" if twice else part
    return f"{''.join(made)}]"
