"""`/v1/chat/completions` and `/v1/completions`, for OpenAI clients."""

from __future__ import annotations

from typing import TypeVar

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from app.gateway.asking.gateway import Gateway, gateway_of
from app.gateway.asking.openapi import EVENTS, replies, schema_of, shape
from app.gateway.asking.reading import read_parameters
from app.gateway.callers.identity import Identity
from app.gateway.openai.chat_body import ChatBody
from app.gateway.openai.chat_reply import ChatReply
from app.gateway.openai.exchange import Exchange
from app.gateway.openai.sampling_body import SamplingBody
from app.gateway.openai.text_body import TextBody
from app.gateway.openai.text_reply import TextReply

router = APIRouter(prefix="/v1", tags=["openai"])

Body = TypeVar("Body", bound=SamplingBody)

_COMPLETION = shape(id="string", object="string", created="integer", model="string", choices="array", usage="object")
_REPLIES = replies({**_COMPLETION, **EVENTS}, 404, 409, 413, 415, 500, 504)


@router.post("/chat/completions", openapi_extra=schema_of(ChatBody), responses=_REPLIES)
async def chat(request: Request) -> Response:
    """Answer `messages`, complete or as a stream.

    Each choice is a request of its own. `parley` contains its id, which can be used to cancel the answer and to read it
    again.
    """
    gateway, exchange, body, identity = await _read(request, ChatBody)
    conversation = exchange.caller.conversation
    asked = await exchange.admit(
        body.requests(identity, store=gateway.settings.gateway_store, conversation=conversation)
    )
    reply = ChatReply(asked, body.model or gateway.models.default, wants_usage=body.wants_usage)
    return await exchange.answer(asked, reply, stream=body.stream)


@router.post("/completions", openapi_extra=schema_of(TextBody), responses=_REPLIES)
async def complete(request: Request) -> Response:
    """Continue texts as the model reads them: without chat template, system prompt and memory."""
    gateway, exchange, body, identity = await _read(request, TextBody)
    asked = await exchange.admit(body.requests(identity, store=gateway.settings.gateway_store))
    reply = TextReply(
        asked,
        body.model or gateway.models.default,
        per_prompt=body.choices,
        echo=bool(body.echo),
        is_only_echo=body.is_only_echo,
        wants_usage=body.wants_usage,
    )
    return await exchange.answer(asked, reply, stream=body.stream)


async def _read(request: Request, kind: type[Body]) -> tuple[Gateway, Exchange, Body, Identity]:
    gateway = gateway_of(request)
    caller = await gateway.access.caller(request)
    body, ignored = await read_parameters(request, kind)
    identity = caller.identity_of(body.user_id, body.user)
    return gateway, Exchange(gateway, request, caller, identity, ignored, body.in_callers_words), body, identity
