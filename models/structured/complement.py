r"""Regular expressions that look ahead, and what they do not match, as expressions that do neither.

llguidance's expressions know no look-ahead. The states of an automaton are the derivatives of an expression (Brzozowski
1964; Owens, Reppy and Turon 2009), which are as easy for what is of two expressions, or not of one; then the states are
eliminated one after the other.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import pairwise

from models.structured.expressions import (
    EMPTY,
    END,
    LAST,
    NOTHING,
    Both,
    Chars,
    Choice,
    Expression,
    Not,
    Ranges,
    Repeated,
    Sequence,
    UnreadableError,
    both,
    choice,
    found_in,
    negated,
    repeated,
    sequence,
    united,
)

LONGEST_PATTERN = 300
MOST_STATES = 100
MOST_CHARACTERS = 8000
"""Of the expression that is made."""
_SURROGATES = (0xD800, 0xDFFF)
_BEGIN, _FINISH = -1, -2

_Edges = dict[tuple[int, int], str]


def unlike(pattern: str, *, begins: bool = False) -> str | None:
    """The pattern of texts of which `pattern` matches no part; `begins`: none at their beginning.

    None if there is no such text, `pattern` cannot be read, or the result would be too large.
    """
    return _made(pattern, begins=begins, is_unlike=True)


def plain(pattern: str) -> str | None:
    """The pattern of texts of which `pattern`, which may look ahead, matches a part; None as in `unlike`."""
    return _made(pattern, begins=False, is_unlike=False)


@lru_cache(maxsize=256)
def _made(pattern: str, *, begins: bool, is_unlike: bool) -> str | None:
    if len(pattern) > LONGEST_PATTERN:
        return None
    try:
        found = found_in(pattern, begins=begins)
        edges = _automaton(negated(found) if is_unlike else found)
        made = "" if edges is None else _eliminated(edges)
    except (UnreadableError, RecursionError):
        return None
    return f"^(?:{made})$" if made else None


def _automaton(whole: Expression) -> _Edges | None:
    """The edges between states that lead to an end, by the sets of characters on them, and to `_FINISH`."""
    states: dict[Expression, int] = {whole: 0}
    waiting = [whole]
    sets = [*_sets(whole)]
    ways: dict[tuple[int, int], list[tuple[int, int]]] = {}
    ends: set[int] = set()
    while waiting:
        state = waiting.pop()
        number = states[state]
        if _is_complete(_derivative(state, END)):
            ends.add(number)
        for ranges in sets:
            following = _derivative(state, ranges[0][0])
            if following not in states:
                if len(states) == MOST_STATES:
                    raise UnreadableError
                states[following] = len(states)
                waiting.append(following)
            ways.setdefault((number, states[following]), []).extend(ranges)
    alive = _leading_to(ends, ways)
    if 0 not in alive:
        return None
    edges = {way: _class(united(ranges)) for way, ranges in ways.items() if alive.issuperset(way)}
    return {**edges, (_BEGIN, 0): "", **{(end, _FINISH): "" for end in ends}}


def _leading_to(ends: set[int], ways: dict[tuple[int, int], list[tuple[int, int]]]) -> set[int]:
    alive, waiting = set(ends), list(ends)
    while waiting:
        one = waiting.pop()
        before = {source for source, target in ways if target == one} - alive
        alive |= before
        waiting += before
    return alive


def _eliminated(edges: _Edges) -> str:
    while inner := {one for way in edges for one in way} - {_BEGIN, _FINISH}:
        state = min(inner, key=lambda one: _weight(one, edges))
        loop = edges.pop((state, state), None)
        middle = "" if loop is None else f"{_grouped(loop)}*"
        sources = {source: edges.pop((source, target)) for source, target in [*edges] if target == state}
        targets = {target: edges.pop((source, target)) for source, target in [*edges] if source == state}
        for source, before in sources.items():
            for target, after in targets.items():
                text = f"{_joined(before)}{middle}{_joined(after)}"
                known = edges.get((source, target))
                edges[source, target] = text if known is None else f"{known}|{text}"
                if len(edges[source, target]) > MOST_CHARACTERS:
                    raise UnreadableError
    return edges[_BEGIN, _FINISH]


def _weight(state: int, edges: _Edges) -> int:
    """How much text there is more without the state."""
    before = [len(text) for (source, target), text in edges.items() if target == state != source]
    after = [len(text) for (source, target), text in edges.items() if source == state != target]
    loop = len(edges.get((state, state), ""))
    return sum(before) * (len(after) - 1) + sum(after) * (len(before) - 1) + loop * (len(before) * len(after) - 1)


def _joined(text: str) -> str:
    return f"(?:{text})" if "|" in text else text


def _grouped(text: str) -> str:
    is_class = text.startswith("[") and text.find("]") == len(text) - 1
    return text if is_class or text == "(?s:.)" else f"(?:{text})"


def _sets(whole: Expression) -> Iterator[Ranges]:
    """Sets of characters that the expression does not tell apart."""
    named = {*_named(whole)}
    bounds = sorted({0, LAST + 1} | {bound for ranges in named for one in ranges for bound in (one[0], one[1] + 1)})
    alike: dict[frozenset[Ranges], list[tuple[int, int]]] = {}
    for first, following in pairwise(bounds):
        if first <= LAST:
            key = frozenset(ranges for ranges in named if _has(ranges, first))
            alike.setdefault(key, []).append((first, following - 1))
    yield from map(tuple, alike.values())


def _named(expression: Expression) -> Iterator[Ranges]:
    match expression:
        case Chars(ranges):
            yield ranges
        case Sequence(parts) | Choice(parts) | Both(parts):
            for part in parts:
                yield from _named(part)
        case Repeated(part) | Not(part):
            yield from _named(part)


def _has(ranges: Ranges, character: int) -> bool:
    return any(first <= character <= last for first, last in ranges)


def _is_complete(expression: Expression) -> bool:
    """Whether the empty text is of it."""
    match expression:
        case Chars():
            return False
        case Sequence(parts):
            return all(map(_is_complete, parts))
        case Choice(choices):
            return any(map(_is_complete, choices))
        case Repeated(part, least):
            return not least or _is_complete(part)
        case Both(parts):
            return all(map(_is_complete, parts))
        case Not(part):
            return not _is_complete(part)
        case _:
            raise UnreadableError


def _derivative(expression: Expression, character: int) -> Expression:
    """What may follow the character."""
    match expression:
        case Chars(ranges):
            return EMPTY if _has(ranges, character) else NOTHING
        case Sequence(parts):
            found = []
            for at, part in enumerate(parts):
                found.append(sequence(_derivative(part, character), *parts[at + 1 :]))
                if not _is_complete(part):
                    break
            return choice(found)
        case Choice(choices):
            return choice(_derivative(one, character) for one in choices)
        case Repeated(part, least, most):
            rest = repeated(part, max(0, least - 1), None if most is None else most - 1)
            return sequence(_derivative(part, character), rest)
        case Both(parts):
            return both(_derivative(part, character) for part in parts)
        case Not(part):
            return negated(_derivative(part, character))
        case _:
            raise UnreadableError


def _class(ranges: Ranges) -> str:
    if ranges == ((0, LAST),):
        return "(?s:.)"
    written = []
    for first, last in ranges:
        least = _SURROGATES[1] + 1 if _SURROGATES[0] <= first <= _SURROGATES[1] else first
        most = _SURROGATES[0] - 1 if _SURROGATES[0] <= last <= _SURROGATES[1] else last
        if least <= most:
            written.append(_written(least) if least == most else f"{_written(least)}-{_written(most)}")
    return f"[{''.join(written)}]"


def _written(code: int) -> str:
    character = chr(code)
    return character if character.isascii() and character.isalnum() else f"\\U{code:08X}"
