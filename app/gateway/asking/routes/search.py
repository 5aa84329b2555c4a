"""`/v1/search`: the user's history, by meaning and by words."""

from __future__ import annotations

from typing import Literal

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from app.gateway.asking.gateway import gateway_of
from app.gateway.asking.openapi import replies, shape
from app.gateway.edge.errors import ApiError, json_response
from app.gateway.edge.while_connected import while_connected
from app.search.rows import TurnSide
from app.search.vector_store import Query
from app.wire.error import ErrorCode
from app.wire.request import INT64
from tables.erasures import Scope

router = APIRouter(prefix="/v1", tags=["history"])

_MOST_HITS = 100
_MOST_QUERY = 4096
_FIRST_MS = 100_000_000_000
"""Of the year 1973: what is below, and not 0, is a time in seconds."""


@router.get("/search", responses=replies(shape(query="string", hits="array")))
async def search(
    request: Request,
    q: str = "",
    limit: int = 10,
    conversation_id: str | None = None,
    role: Literal["user", "assistant"] | None = None,
    since: int | None = None,
    until: int | None = None,
    include_replaced: bool = False,
) -> Response:
    """Search the user's history by meaning and by words; times are Unix milliseconds. With `include_replaced` turns are
    found, too, in whose place others stand; `replaced_by` is the latest of these.
    """
    gateway = gateway_of(request)
    identity = await gateway.access.identify(request)
    gateway.limits.admit_lookup(identity)
    text = q or request.query_params.get("query", "")
    _check(text, limit, conversation_id, since, until)
    gateway.audit_trail.searched(identity)
    await gateway.erasures.current(identity.user_id)
    query = Query(
        user_id=identity.user_id,
        text=text,
        limit=limit,
        conversation_id=conversation_id,
        role=None if role is None else TurnSide(role),
        since=since,
        until=until,
        erased_at=gateway.erasures.of(Scope(identity.user_id)),
        erased=gateway.erasures.under_way(identity.user_id),
        include_replaced=include_replaced,
    )
    hits = await while_connected(request, gateway.searching.search(query))
    return json_response({"query": text, "hits": [hit for hit in hits if not gateway.erasures.cover(hit)]})


def _check(text: str, limit: int, conversation_id: str | None, since: int | None, until: int | None) -> None:
    if not text.strip() or len(text) > _MOST_QUERY:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"q: must have 1-{_MOST_QUERY} characters", param="q")
    if not 1 <= limit <= _MOST_HITS:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"limit: must be 1-{_MOST_HITS}", param="limit")
    for name, at in (("since", since), ("until", until)):
        if at is not None and (at not in INT64 or 0 < at < _FIRST_MS):
            raise ApiError(ErrorCode.INVALID_REQUEST, f"{name}: must be a time in Unix milliseconds", param=name)
    if since is not None and until is not None and until <= since:
        raise ApiError(ErrorCode.INVALID_REQUEST, "until: must be later than since", param="until")
    if conversation_id == "":
        raise ApiError(ErrorCode.INVALID_REQUEST, "conversation_id: must not be empty", param="conversation_id")
