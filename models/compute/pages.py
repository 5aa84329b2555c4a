"""Pages of the KV cache: which sequences hold them, and which prefixes they contain.

A page holds the keys and values of `size` consecutive tokens. A full page is published under (its predecessor, its
tokens), so that a later prompt with the same prefix reuses it instead of computing it. The predecessor is the node of
the page before or, at the beginning, the adapter. The lookup compares the tokens themselves, so there are no
collisions. A released page stays published until its memory is needed, least recently used first.

Users share only the pages of the text that the service puts before every conversation. From the first page that
contains a user's text on, the user's salt is part of the predecessor. Otherwise `cached_tokens`, or the time to the
first token, would reveal to one user what another has asked.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count

Node = int | str | tuple["Node", str]
"""The predecessor of a page: a published page, the beginning of a sequence, or either of these with a user's salt."""


@dataclass(frozen=True, slots=True)
class Sharing:
    """Whose pages a sequence may reuse: anyone's of the adapter within its first `tokens`, after that its user's."""

    adapter: str
    user_salt: str
    tokens: int

    @property
    def start(self) -> Node:
        return f"adapter {self.adapter}"

    def before(self, page: int, size: int, node: Node) -> Node:
        """The predecessor of the page with that number, of `size` tokens, if `node` is the page before it."""
        return (node, self.user_salt) if page == self.tokens // size else node


class PagePool:
    """Page 0 is never allocated: padding is written there."""

    def __init__(self, pages: int, size: int) -> None:
        self.pages = pages
        self.size = size
        self._free = list(range(pages - 1, 0, -1))
        self._holders = [0] * pages
        self._kept: OrderedDict[int, None] = OrderedDict()  # published and not held; oldest first
        self._published: dict[tuple[Node, tuple[int, ...]], int] = {}
        self._keys: dict[int, tuple[Node, tuple[int, ...]]] = {}
        self._nodes: dict[int, int] = {}
        self._next_node = count(1)

    @property
    def available(self) -> int:
        """Pages that `allocate` could give."""
        return len(self._free) + len(self._kept)

    @property
    def in_use(self) -> int:
        return self.pages - 1 - self.available

    def match(self, sharing: Sharing, tokens: Sequence[int]) -> tuple[list[int], Node]:
        """The published pages of the longest known prefix of `tokens`, held for the caller, and the node after them."""
        node = sharing.start
        pages: list[int] = []
        for start in range(0, len(tokens) - self.size + 1, self.size):
            before = sharing.before(len(pages), self.size, node)
            page = self._published.get((before, tuple(tokens[start : start + self.size])))
            if page is None:
                break
            pages.append(page)
            node = self._nodes[page]
        for page in pages:
            self._kept.pop(page, None)
            self._holders[page] += 1
        return pages, node

    def allocate(self, number: int) -> list[int] | None:
        """Allocate `number` pages with undefined content, or None if there are not enough."""
        if number > self.available:
            return None
        allocated = []
        for _ in range(number):
            if self._free:
                page = self._free.pop()
            else:
                page, _ = self._kept.popitem(last=False)
                self._unpublish(page)
            self._holders[page] = 1
            allocated.append(page)
        return allocated

    def publish(self, before: Node, tokens: Sequence[int], page: int) -> Node:
        """Publish a full page; returns the node after it."""
        key = (before, tuple(tokens))
        if (twin := self._published.get(key)) is not None:
            return self._nodes[twin]  # computed twice at the same time: the first one stays
        node = next(self._next_node)
        self._published[key] = page
        self._keys[page] = key
        self._nodes[page] = node
        return node

    def release(self, pages: Sequence[int], *, forget: bool = False) -> list[int]:
        """Release pages; with `forget` they are also unpublished. Returns the pages that no sequence holds any more."""
        let_go = []
        for page in reversed(pages):  # the end of a sequence is evicted before its beginning
            if forget:
                self._unpublish(page)
            self._holders[page] -= 1
            if self._holders[page]:
                continue
            let_go.append(page)
            if page in self._keys:
                self._kept[page] = None
            else:
                self._free.append(page)
        return let_go

    def held_once(self, pages: Sequence[int]) -> int:
        """How many of these become available if their holder releases them."""
        return sum(self._holders[page] == 1 for page in pages)

    def check(self) -> None:
        """Raise if the bookkeeping is inconsistent. If no sequence should hold a page, `in_use` shows leaks."""
        free, kept = set(self._free), set(self._kept)
        held = {page for page, holders in enumerate(self._holders) if holders}
        if len(free) != len(self._free) or free & kept or free & held or kept & held or min(self._holders) < 0:
            raise AssertionError("a page of the KV cache is in two places")
        if len(free) + len(kept) + len(held) != self.pages - 1 or 0 in free | kept | held:
            raise AssertionError("a page of the KV cache is lost")
        if {page: key for key, page in self._published.items()} != self._keys or set(self._nodes) != set(self._keys):
            raise AssertionError("the prefix index of the KV cache disagrees with itself")
        if not kept <= set(self._keys) or free & set(self._keys):
            raise AssertionError("a page of the KV cache is published and free")

    def _unpublish(self, page: int) -> None:
        key = self._keys.pop(page, None)
        if key is not None:
            del self._published[key]
            del self._nodes[page]


def pages_for(tokens: int, size: int) -> int:
    return -(-tokens // size)
