"""The history: search, conversations and erasure."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, Literal

import msgspec
from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from app.gateway.asking.gateway import Gateway, gateway_of
from app.gateway.asking.openapi import replies, shape
from app.gateway.callers.identity import Identity
from app.gateway.edge.errors import ApiError, json_response
from app.gateway.edge.while_connected import while_connected
from app.gateway.erasure.report import report
from app.gateway.openai.conversation import described
from app.gateway.openai.pages import Entry, cut
from app.search.rows import TurnSide
from app.search.vector_store import Query
from app.wire.error import ErrorCode
from app.wire.limits import INT64
from app.wire.turn import Turn
from tables.erasures import Scope

router = APIRouter(prefix="/v1", tags=["history"])

_MOST_HITS = 100
_MOST_QUERY = 4096
_TITLE = 80
_MOST_OF_A_PAGE = 1000
_MOST_LISTED = 10_000
_ENDS: Any = {"has_more": "boolean", "first_id": ["string", "null"], "last_id": ["string", "null"]}
_FIRST_MS = 100_000_000_000
"""Of the year 1973: what is below, and not 0, is a time in seconds."""


@router.get(
    "/me",
    responses=replies(shape(user_id="string", tenant=["string", "null"], development="boolean", tools="array")),
)
async def me(request: Request) -> Response:
    """The caller as the gateway identifies it, and the tools that the chat page offers."""
    gateway = gateway_of(request)
    identity = await gateway.access.identify(request)
    reply = {
        "user_id": identity.user,
        "tenant": identity.tenant,
        "development": gateway.access.development,
        "tools": gateway.tools,
    }
    return json_response(reply)


@router.get("/search", responses=replies(shape(query="string", hits="array")))
async def search(
    request: Request,
    q: str = "",
    limit: int = 10,
    conversation_id: str | None = None,
    role: Literal["user", "assistant"] | None = None,
    since: int | None = None,
    until: int | None = None,
) -> Response:
    """Search the user's history by meaning and by words; times are Unix milliseconds."""
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


@router.get("/conversations", responses=replies(shape(conversations="array", **_ENDS)))
async def conversations(request: Request, after: str | None = None, limit: int = _MOST_OF_A_PAGE) -> Response:
    """The user's conversations, latest first, a page at a time: `after` is the `last_id` of the page before.

    A chat completion without a conversation id gets one of its own, equal to the request's id. It is listed once it has
    a second turn.
    """
    gateway = gateway_of(request)
    identity = await gateway.access.identify(request)
    gateway.limits.admit_lookup(identity)
    known = await while_connected(request, _listed(gateway, identity.user_id))
    latest = (Entry(name, {**msgspec.structs.asdict(known[name]), "conversation_id": name}) for name in reversed(known))
    page = await cut(latest, after, limit, "asc", _MOST_OF_A_PAGE)
    return json_response({"conversations": [*page.data], **page.ends})


class _Listed(msgspec.Struct):
    title: str
    turns: int
    last_at: int


async def _listed(gateway: Gateway, user_id: str) -> dict[str, _Listed]:
    """In the order of their last turns. Of the oldest ones of very many, only what changes again is known."""
    known: dict[str, _Listed] = {}
    alone: set[str] = set()
    asked_at: dict[str, int] = {}
    async with aclosing(gateway.turns(user_id)) as turns:
        async for turn in turns:
            name = turn.conversation_id
            # Another turn of it has another request's id.
            (alone.add if name == turn.request_id else alone.discard)(name)
            one = known.pop(name, None) or _Listed(turn.prompt[:_TITLE], 0, 0)
            known[name] = _Listed(one.title, one.turns + 1, turn.created_at)
            asked_at[name] = turn.asked_at
            if len(known) > 2 * _MOST_LISTED:
                for oldest in [*known][:_MOST_LISTED]:
                    alone.discard(oldest)
                    del known[oldest], asked_at[oldest]
    erased = {name for name, at in asked_at.items() if 0 < at <= gateway.erasures.at(user_id, name)}  # meanwhile
    return {name: one for name, one in known.items() if name not in alone and name not in erased}


@router.get(
    "/conversations/{conversation_id:any}",
    responses=replies(shape(conversation_id="string", turns="array", **_ENDS)),
)
async def conversation(
    request: Request, conversation_id: str, after: str | None = None, limit: int = _MOST_OF_A_PAGE
) -> Response:
    """The turns of one conversation, oldest first, a page at a time: `after` is the `last_id` of the page before. Also
    an object of OpenAI's API.
    """
    gateway = gateway_of(request)
    identity = await gateway.access.identify(request)
    gateway.limits.admit_lookup(identity)
    first_ms, erased_at = 0, -1

    async def entries() -> AsyncGenerator[Entry, None]:
        nonlocal first_ms
        async with aclosing(gateway.turns(identity.user_id)) as turns:
            async for turn in turns:
                if turn.conversation_id == conversation_id:
                    first_ms = first_ms or turn.asked_at
                    yield Entry(turn.request_id, _as_json(turn))

    while erased_at != (erased_at := gateway.erasures.at(identity.user_id, conversation_id)):  # it may be meanwhile
        page = await while_connected(request, cut(entries(), after, limit, "asc", _MOST_OF_A_PAGE))
    reply = {"conversation_id": conversation_id, "turns": [*page.data], **page.ends}
    return json_response({**described(conversation_id, first_ms), **reply})


@router.delete(
    "/users/{user_id:any}", status_code=202, responses=replies(shape(user_id="string", status="string"), status=202)
)
async def erase(request: Request, user_id: str) -> Response:
    """Erase everything of the user; `GET /v1/users/{user_id}/erasure` shows the progress."""
    gateway = gateway_of(request)
    identity = await _self(request, user_id)
    gateway.limits.erase(identity)
    await gateway.erase(Scope(identity.user_id))
    return json_response({"user_id": user_id, "status": "erasing"}, 202)


@router.get(
    "/users/{user_id:any}/erasure",
    responses=replies(
        shape(user_id="string", status="string", erased_at=["integer", "null"], remaining="array", logs="object")
    ),
)
async def erasure(request: Request, user_id: str, conversation_id: str | None = None) -> Response:
    """Progress of the last erasure of the user, or of one conversation: `none`, `erasing` or `done`, and what remains.

    `logs` contains the times (Unix milliseconds) until which Kafka's logs may still contain copies, which are not
    served.
    """
    gateway = gateway_of(request)
    identity = await _self(request, user_id)
    gateway.limits.admit_lookup(identity)
    scope = Scope(identity.user_id, conversation_id)
    await gateway.erasures.current(identity.user_id)
    status = report(gateway.erasures, scope, gateway.settings, gateway.partitions)
    return json_response({"user_id": user_id, **status})


async def _self(request: Request, user_id: str) -> Identity:
    """The caller's identity; raises `ApiError` unless it is that user."""
    identity = await gateway_of(request).access.identify(request, user_id)
    if identity.user != user_id:
        raise ApiError(ErrorCode.UNAUTHORIZED, "a caller can erase only its own history", status=403, param="user_id")
    return identity


def _as_json(turn: Turn) -> dict[str, Any]:
    return {
        "request_id": turn.request_id,
        "prompt": turn.prompt,
        "answer": turn.answer,
        "reasoning": turn.reasoning,
        "tool_calls": turn.tool_calls,
        "finish_reason": turn.finish_reason,
        "usage": turn.usage,
        "model_version": turn.model_version,
        "created_at": turn.created_at,
        "timing": turn.timing,
    }
