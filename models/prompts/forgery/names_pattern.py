"""A regular expression that finds the longest of many names.

`re` tries the alternatives of `a|b|c` one by one. Gemma 3 has 6,414 added tokens, and most begin with `<`: `re` needed
4.4 ms for a prompt of 2,355 characters, and 25 µs for every `<`. Here the names form a tree of letters, and `re` tries
only those that continue with the next letter: 0.02 ms, and 0.02 µs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

DEEPEST = 150
"""Letters at which names part, one within the other; what follows is written as alternatives. `re` compiles groups by
recursion.
"""

Tree = dict[str, "Tree"]
_END = ""


def names_pattern(names: Iterable[str]) -> str:
    """It matches one of `names`, and where one begins with another, the longer one; nothing if there are none."""
    tree: Tree = {}
    for name in filter(None, names):
        node = tree
        for letter in name:
            node = node.setdefault(letter, {})
        node[_END] = {}
    return _written(tree, DEEPEST) if tree else r"(?!)"


def _written(node: Tree, depth: int) -> str:
    chain: list[str] = []
    while len(node) == 1:
        ((letter, node),) = node.items()
        chain.append(re.escape(letter))
    if not node:
        return "".join(chain)
    if not depth:
        return f"{''.join(chain)}(?:{'|'.join(map(re.escape, _ends(node)))})"
    ways = [re.escape(letter) + _written(after, depth - 1) for letter, after in node.items() if letter != _END]
    return f"{''.join(chain)}(?:{'|'.join(ways)}){'?' if _END in node else ''}"


def _ends(node: Tree) -> list[str]:
    """What may follow, the longest first."""
    found, unread = [], [("", node)]
    while unread:
        before, node = unread.pop()
        for letter, after in node.items():
            unread.append((before + letter, after)) if letter != _END else found.append(before)
    return sorted(found, key=len, reverse=True)
