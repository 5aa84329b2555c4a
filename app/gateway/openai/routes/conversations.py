"""`/v1/conversations` as OpenAI's clients call it; what the gateway's own pages read is in history.py."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from app.gateway.asking.gateway import gateway_of
from app.gateway.asking.openapi import replies, shape
from app.gateway.asking.parameters import ignored_header
from app.gateway.asking.reading import read_parameters, schema_of
from app.gateway.edge.errors import invalid, json_response
from app.gateway.edge.while_connected import while_connected
from app.gateway.openai.conversation import ConversationBody, items_of
from app.gateway.openai.pages import LIST, Order, page_of
from app.wire.limits import MAX_NAME_LENGTH, is_conversation_id
from tables.erasures import Scope

router = APIRouter(prefix="/v1/conversations", tags=["openai"])

_CONVERSATION = shape(id="string", object="string", created_at="integer", metadata="object")
_DELETED = shape(id="string", object="string", deleted="boolean")


@router.post("", openapi_extra=schema_of(ConversationBody), responses=replies(_CONVERSATION, 413, 415))
async def create(request: Request) -> Response:
    """A name for a conversation; it begins with the first response that has it."""
    await gateway_of(request).access.caller(request)
    body, ignored = await read_parameters(request, ConversationBody)
    return json_response(body.created(), headers=ignored_header(ignored))


@router.delete("/{conversation_id:any}", responses=replies(_DELETED))
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


@router.get("/{conversation_id:any}/items", responses=replies(LIST))
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
