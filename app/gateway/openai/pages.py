"""Lists, a page at a time.

A page has a limit of entries and of bytes, so it may be shorter than what was asked for; `has_more` says whether
others follow. What is read on the way to it is not kept: a conversation may have more turns than there is memory.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, AsyncIterable, Iterable
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import msgspec

from app.gateway.asking.openapi import shape
from app.gateway.edge.errors import invalid

Order = Literal["asc", "desc"]

LIST = shape(object="string", data="array", first_id=["string", "null"], last_id=["string", "null"], has_more="boolean")
_MOST_ITEMS = 100
MOST_BYTES = 1024 * 1024


class Entry(NamedTuple):
    id: str
    value: object


@dataclass(slots=True)
class Page:
    """Entries in their order; `has_more`: behind the last one."""

    ids: deque[str] = field(default_factory=deque)
    data: deque[msgspec.Raw] = field(default_factory=deque)
    size: int = 0
    has_more: bool = False

    @property
    def ends(self) -> dict[str, Any]:
        first, last = (self.ids[0], self.ids[-1]) if self.ids else (None, None)
        return {"has_more": self.has_more, "first_id": first, "last_id": last}

    def has_room(self, entry: msgspec.Raw, limit: int) -> bool:
        return not self.ids or (len(self.ids) < limit and self.size + len(bytes(entry)) <= MOST_BYTES)

    def add(self, name: str, entry: msgspec.Raw) -> None:
        self.ids.append(name)
        self.data.append(entry)
        self.size += len(bytes(entry))

    def drop_first(self) -> None:
        self.ids.popleft()
        self.size -= len(bytes(self.data.popleft()))
        self.has_more = True

    def reverse(self) -> None:
        self.ids.reverse()
        self.data.reverse()


async def cut(
    entries: AsyncGenerator[Entry, None] | Iterable[Entry], after: str | None, limit: int, order: Order, most: int
) -> Page:
    """The page behind the entry with the id `after`; `entries` are in ascending order. Raises `ApiError`."""
    if not 1 <= limit <= most:
        raise invalid("limit", f"must be 1-{most}")
    async with aclosing(_each(entries)) as each:
        page = await (_ascending if order == "asc" else _descending)(each, after, limit)
    if page is None:
        raise invalid("after", "is not the id of an item of this list")
    return page


async def page_of(
    items: AsyncGenerator[dict[str, Any], None] | Iterable[dict[str, Any]], after: str | None, limit: int, order: Order
) -> dict[str, Any]:
    """A page of items with an `id`, as OpenAI's clients read it; raises `ApiError`."""
    async with aclosing(_each(items)) as each:
        page = await cut((Entry(item["id"], item) async for item in each), after, limit, order, _MOST_ITEMS)
    return {"object": "list", "data": [*page.data], **page.ends}


async def _ascending(entries: AsyncIterable[Entry], after: str | None, limit: int) -> Page | None:
    page, is_behind = Page(), after is None
    async for name, value in entries:
        if not is_behind:
            is_behind = name == after
            continue
        entry = _encoded(value)
        if not page.has_room(entry, limit):
            page.has_more = True
            break
        page.add(name, entry)
    return page if is_behind else None


async def _descending(entries: AsyncIterable[Entry], after: str | None, limit: int) -> Page | None:
    page = Page()
    async for name, value in entries:
        if name == after:
            break
        entry = _encoded(value)
        while not page.has_room(entry, limit):
            page.drop_first()
        page.add(name, entry)
    else:
        if after is not None:
            return None
    page.reverse()
    return page


def _encoded(value: object) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(value))


async def _each(items: AsyncGenerator[Any, None] | Iterable[Any]) -> AsyncGenerator[Any, None]:
    if isinstance(items, AsyncGenerator):
        async with aclosing(items):
            async for item in items:
                yield item
    else:
        for item in items:
            yield item
