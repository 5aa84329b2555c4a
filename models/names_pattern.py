"""A regular expression that finds the longest of many names.

`re` tries the alternatives of `a|b|c` one after the other. Gemma 3 has 6,414 added tokens, of which most begin with
`<`: a prompt of 2,355 characters with turns took 4.4 ms, and each `<` that somebody writes 25 µs. Written as a tree of
their letters, only alternatives that go on with the next character are tried: 0.02 ms, and 0.02 µs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

DEEPEST = 150
"""Letters at which names part, one within the other. `re` compiles groups by recursion."""

Tree = dict[str, "Tree"]
_END = ""


def names_pattern(names: Iterable[str]) -> str:
    """It matches one of `names`, and where one begins with another, the longer one; nothing if there are none."""
    distinct = sorted({name for name in names if name}, key=len, reverse=True)
    if not distinct:
        return r"(?!)"
    tree: Tree = {}
    for name in distinct:
        node = tree
        for letter in name:
            node = node.setdefault(letter, {})
        node[_END] = {}
    try:
        return _written(tree, DEEPEST)
    except _TooDeepError:
        return "|".join(map(re.escape, distinct))


class _TooDeepError(Exception):
    pass


def _written(node: Tree, depth: int) -> str:
    chain: list[str] = []
    while len(node) == 1:
        ((letter, node),) = node.items()
        chain.append(re.escape(letter))
    if not node:
        return "".join(chain)
    if not depth:
        raise _TooDeepError
    ways = [re.escape(letter) + _written(after, depth - 1) for letter, after in node.items() if letter != _END]
    return f"{''.join(chain)}(?:{'|'.join(ways)}){'?' if _END in node else ''}"
