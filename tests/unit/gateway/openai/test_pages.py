"""Lists a page at a time: every entry once, in order, and no page larger than its bounds."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import msgspec
import pytest

from app.gateway.edge.errors import ApiError
from app.gateway.openai import pages
from app.gateway.openai.pages import Entry, Order, cut, page_of

LARGE = "x" * 400_000


def items(count: int, text: str = "") -> list[dict[str, Any]]:
    return [{"id": f"item_{number}", "text": text} for number in range(count)]


@pytest.mark.parametrize("order", ["asc", "desc"])
@pytest.mark.parametrize(
    ("count", "text", "limit", "most"), [(25, "", 10, 10), (7, LARGE, 100, 2), (3, 3 * LARGE, 100, 1)]
)
async def test_pages_have_every_item_once(order: Order, count: int, text: str, limit: int, most: int) -> None:
    seen: list[str] = []
    after, more = None, True
    while more:
        page = await page_of(items(count, text), after, limit, order)
        assert 1 <= len(page["data"]) <= most
        told = [msgspec.json.decode(bytes(one))["id"] for one in page["data"]]
        assert (page["first_id"], page["last_id"]) == (told[0], told[-1])
        seen += told
        after, more = page["last_id"], page["has_more"]
    names = [item["id"] for item in items(count)]
    assert seen == (names if order == "asc" else names[::-1])


@pytest.mark.parametrize("order", ["asc", "desc"])
async def test_an_empty_list_has_an_empty_page(order: Order) -> None:
    page = await page_of([], None, 10, order)
    assert page == {"object": "list", "data": [], "has_more": False, "first_id": None, "last_id": None}


@pytest.mark.parametrize(
    ("after", "limit", "name"), [("item_9", 10, "after"), (None, 0, "limit"), (None, 101, "limit")]
)
@pytest.mark.parametrize("order", ["asc", "desc"])
async def test_what_is_on_no_page_is_refused(order: Order, after: str | None, limit: int, name: str) -> None:
    with pytest.raises(ApiError) as refusal:
        await page_of(items(3), after, limit, order)
    assert refusal.value.param == name


@pytest.mark.parametrize("order", ["asc", "desc"])
async def test_what_is_read_on_the_way_is_not_kept(order: Order) -> None:
    alive = 0

    class Turn:
        def __init__(self) -> None:
            nonlocal alive
            alive += 1
            self.text = LARGE

        def __del__(self) -> None:
            nonlocal alive
            alive -= 1

    async def turns() -> AsyncGenerator[Entry, None]:
        for number in range(50):
            assert alive <= 4
            yield Entry(str(number), {"text": Turn().text})

    page = await cut(turns(), None if order == "desc" else "40", 100, order, 100)
    assert page.size <= pages.MOST_BYTES


async def test_a_list_that_is_left_early_is_closed() -> None:
    closed = []

    async def turns() -> AsyncGenerator[dict[str, Any], None]:
        try:
            for item in items(100):
                yield item
        finally:
            closed.append(True)

    await page_of(turns(), None, 2, "asc")
    assert closed == [True]
