"""Lists of OpenAI's API, a page at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from app.gateway.bodies.openapi import shape
from app.gateway.errors import invalid

Order = Literal["asc", "desc"]

LIST = shape(object="string", data="array", first_id=["string", "null"], last_id=["string", "null"], has_more="boolean")
_MOST_ITEMS = 100


def page_of(items: Sequence[dict[str, Any]], after: str | None, limit: int, order: Order) -> dict[str, Any]:
    """The page behind the item with the id `after`; `items` are in ascending order. Raises `ApiError`."""
    if not 1 <= limit <= _MOST_ITEMS:
        raise invalid("limit", f"must be 1-{_MOST_ITEMS}")
    ordered = list(items) if order == "asc" else [*reversed(items)]
    if after is not None:
        ids = [item["id"] for item in ordered]
        if after not in ids:
            raise invalid("after", "is not the id of an item of this list")
        ordered = ordered[ids.index(after) + 1 :]
    page = ordered[:limit]
    ends = {"first_id": page[0]["id"], "last_id": page[-1]["id"]} if page else {"first_id": None, "last_id": None}
    return {"object": "list", "data": page, "has_more": len(ordered) > limit, **ends}
