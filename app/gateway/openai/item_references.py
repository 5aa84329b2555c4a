"""Items of `input` that are named instead of sent: `{"type": "item_reference", "id": ...}`, as Vercel's AI SDK sends
the earlier turns of a chat.

The id of an item contains the request's: `msg_REQUEST_0` is said by a response, `msg_REQUEST_in_0` is of its input, and
`item_REQUEST_out` is of a conversation. No gateway has to remember it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import aclosing
from typing import Any

import msgspec

from app.gateway.edge.errors import ApiError, invalid
from app.gateway.openai.conversation import items_of
from app.gateway.openai.responses_body import InputItem, ResponsesBody
from app.gateway.openai.stored_responses import StoredResponse, StoredResponses
from app.wire.error import ErrorCode

_MOST_RESPONSES = 256
_AT_ONCE = 8
_LONGEST_ID = 400
_OF_CONVERSATIONS = "item"

Item = dict[str, Any]


def has_references(body: ResponsesBody) -> bool:
    return not isinstance(body.input, str) and any(item.is_reference for item in body.input)


async def with_items(body: ResponsesBody, responses: StoredResponses) -> ResponsesBody:
    """The body with the items that it refers to; raises `ApiError` for an id that the caller has no item of."""
    items = () if isinstance(body.input, str) else body.input
    known = await _items({item.id or "" for item in items if item.is_reference}, responses)
    whole = tuple(_item(known, item.id or "") if item.is_reference else item for item in items)
    return msgspec.structs.replace(body, input=whole)


async def _items(wanted: Iterable[str], responses: StoredResponses) -> dict[str, Item]:
    kinds = {name: name.split("_", 2) for name in wanted}
    named = {parts[1] for parts in kinds.values() if len(parts) == 3 and parts[0] != _OF_CONVERSATIONS}
    if len(named) > _MOST_RESPONSES:
        raise invalid("input", f"refers to items of more than {_MOST_RESPONSES} responses")
    known: dict[str, Item] = {}
    if any(parts[0] == _OF_CONVERSATIONS for parts in kinds.values()):
        async with aclosing(responses.turns()) as turns:
            async for turn in turns:
                known |= {item["id"]: item for item in items_of(turn) if item["id"] in kinds}
    await responses.current()
    stored = await asyncio.gather(*map(responses.of_request, named))  # one search finds them all
    at_once = asyncio.Semaphore(_AT_ONCE)
    for items in await asyncio.gather(*(_items_of(one, responses, at_once) for one in stored if one is not None)):
        known |= {item["id"]: item for item in items}
    return known


async def _items_of(stored: StoredResponse, responses: StoredResponses, at_once: asyncio.Semaphore) -> list[Item]:
    try:
        async with at_once:
            output = (await responses.described(stored))["output"]
    except ApiError as error:
        if error.code == ErrorCode.NOT_FOUND:
            return []  # its events have left the log
        raise
    return [*output, *stored.given.input_items(stored.request)]


def _item(known: dict[str, Item], name: str) -> InputItem:
    """Raises `ApiError`."""
    item = known.get(name)
    if item is None or item["status"] == "in_progress":
        reason = "not found: it is unknown, erased, or of a response that was not stored; send the item itself"
        reason = reason if item is None else "not complete yet"
        raise ApiError(ErrorCode.NOT_FOUND, f"input: item with id {name[:_LONGEST_ID]!r} {reason}", param="input")
    if item["type"] == "function_call" and item["status"] == "incomplete":
        item = {**item, "arguments": "{}"}  # it was cut, so they are no JSON
    return msgspec.convert(item, InputItem)
