"""`/v1/conversations`: OpenAI's, and the lists and turns that the chat page reads.

Paths with more behind the name of a conversation come first, because a name may have slashes.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import msgspec
from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from app.gateway.asking.gateway import Gateway, gateway_of
from app.gateway.asking.openapi import replies, schema_of, shape
from app.gateway.asking.parameters import ignored_header
from app.gateway.asking.reading import read_parameters
from app.gateway.edge.errors import invalid, json_response
from app.gateway.edge.while_connected import while_connected
from app.gateway.openai.conversation import ConversationBody, described, items_of
from app.gateway.openai.pages import LIST, Entry, Order, cut, page_of
from app.wire.ids import MAX_NAME_LENGTH, is_conversation_id
from app.wire.turn import Turn
from tables.erasures import Scope

router = APIRouter(prefix="/v1/conversations")

_CONVERSATION = shape(id="string", object="string", created_at="integer", metadata="object")
_ENDS: Any = {"has_more": "boolean", "first_id": ["string", "null"], "last_id": ["string", "null"]}
_TITLE = 80
_MOST_OF_A_PAGE = 1000
_MOST_LISTED = 10_000
_DELETED = shape(id="string", object="string", deleted="boolean")


@router.post("", tags=["openai"], openapi_extra=schema_of(ConversationBody), responses=replies(_CONVERSATION, 413, 415))
async def create(request: Request) -> Response:
    """A name for a conversation; it begins with the first response that has it."""
    await gateway_of(request).access.caller(request)
    body, ignored = await read_parameters(request, ConversationBody)
    return json_response(body.created(), headers=ignored_header(ignored))


@router.delete("/{conversation_id:any}", tags=["openai"], responses=replies(_DELETED))
async def delete(request: Request, conversation_id: str) -> Response:
    """Erase the conversation with its turns and responses. From this reply on nothing of it is served;
    `GET /v1/users/{user_id}/erasure?conversation_id=` shows how far the workers are.

    The reply is the same for one that does not exist. A conversation that begins later under this id is a new one.
    """
    gateway = gateway_of(request)
    identity = await gateway.access.identify(request)
    if not is_conversation_id(conversation_id):
        raise invalid("conversation_id", f"has more than {MAX_NAME_LENGTH} characters")
    gateway.limits.erase_conversation(identity)
    await gateway.erase(Scope(identity.user_id, conversation_id))
    return json_response({"id": conversation_id, "object": "conversation.deleted", "deleted": True})


@router.get("/{conversation_id:any}/items", tags=["openai"], responses=replies(LIST))
async def items(
    request: Request, conversation_id: str, after: str | None = None, limit: int = 20, order: Order = "desc"
) -> Response:
    """The questions and answers of the conversation's turns."""
    gateway = gateway_of(request)
    identity = await gateway.access.identify(request)
    gateway.limits.admit_lookup(identity)

    async def all_items() -> AsyncGenerator[dict[str, Any], None]:
        async with aclosing(gateway.turns(identity.user_id)) as turns:
            async for turn in turns:
                if turn.conversation_id == conversation_id:
                    for item in items_of(turn):
                        yield item

    return json_response(await while_connected(request, page_of(all_items(), after, limit, order)))


@router.get("", tags=["history"], responses=replies(shape(conversations="array", **_ENDS)))
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
    """In the order of their last turns; the first question is the title. Of the oldest of very many, only what changes
    again is known.
    """
    known: dict[str, _Listed] = {}
    alone: set[str] = set()
    asked_at: dict[str, int] = {}
    begun_at: dict[str, int] = {}
    async with aclosing(gateway.turns(user_id)) as turns:
        async for turn in turns:
            name = turn.conversation_id
            # Another turn of it has another request's id.
            (alone.add if name == turn.request_id else alone.discard)(name)
            one = known.pop(name, None) or _Listed(turn.prompt[:_TITLE], 0, 0)
            if turn.asked_at < begun_at.setdefault(name, turn.asked_at):  # words added to its answer ended before it
                begun_at[name], one.title = turn.asked_at, turn.prompt[:_TITLE]
            known[name] = _Listed(one.title, one.turns + 1, turn.created_at)
            asked_at[name] = turn.asked_at
            if len(known) > 2 * _MOST_LISTED:
                for oldest in [*known][:_MOST_LISTED]:
                    alone.discard(oldest)
                    del known[oldest], asked_at[oldest], begun_at[oldest]
    erased = {name for name, at in asked_at.items() if 0 < at <= gateway.erasures.at(user_id, name)}  # meanwhile
    return {name: one for name, one in known.items() if name not in alone and name not in erased}


@router.get(
    "/{conversation_id:any}",
    tags=["history"],
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
        "replaces": turn.hides,
    }
