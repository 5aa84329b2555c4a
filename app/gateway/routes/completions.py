"""`/v1/chat/completions` and `/v1/models`, for OpenAI's clients."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

import msgspec
from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from app.gateway.body import read_body, schema_of
from app.gateway.chat_body import ChatBody
from app.gateway.chat_reply import ChatReply
from app.gateway.errors import ApiError, json_response
from app.gateway.gateway import Gateway, gateway_of
from app.gateway.sse import EventStream
from app.wire import ErrorCode, EventType, TokenEvent
from app.wire import Request as Asked

router = APIRouter(prefix="/v1", tags=["openai"])

_LIFE = b": waiting\n\n"
_DONE = b"data: [DONE]\n\n"


@router.post("/chat/completions", openapi_extra=schema_of(ChatBody))
async def complete(request: Request) -> Response:
    """Answer `messages`, whole or as it is made."""
    gateway = gateway_of(request)
    caller = await gateway.access.caller(request)
    body = await read_body(request, ChatBody)
    # To the holder of a user's key, OpenAI's `user` is a label of its own.
    identity = caller.identity(body.user if caller.takes_users else None)
    gateway.admit(identity.user_id)
    asked = body.request(identity)
    await gateway.outbox.ask(asked, is_new=True)
    reply = ChatReply(asked, wants_usage=body.wants_usage)
    events = _events(gateway, asked)
    headers = {"X-Request-Id": asked.request_id}
    if not body.stream:
        async with aclosing(events):
            return json_response(reply.whole([one async for batch in events for one in batch]), headers=headers)
    gateway.open_stream(identity.user_id)
    try:
        first = await _first(events)
    except BaseException:
        gateway.close_stream(identity.user_id)
        raise
    stream = EventStream(
        _chunks(reply, first, events),
        gateway.settings.gateway_stall_s,
        gateway.metrics,
        lambda: gateway.close_stream(identity.user_id),
    )
    stream.headers.update(headers)
    return stream


@router.get("/models")
async def models(request: Request) -> Response:
    """The models of the settings, and the versions that have answered."""
    gateway = gateway_of(request)
    await gateway.access.caller(request)
    return json_response({"object": "list", "data": [_model(name) for name in gateway.models]})


@router.get("/models/{name:path}")
async def model(request: Request, name: str) -> Response:
    gateway = gateway_of(request)
    await gateway.access.caller(request)
    if name not in gateway.models:
        raise ApiError(ErrorCode.MODEL_NOT_FOUND, "no model of this name has answered", param="model")
    return json_response(_model(name))


def _model(name: str) -> dict[str, object]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "parley"}


async def _events(gateway: Gateway, asked: Asked) -> AsyncGenerator[list[TokenEvent], None]:
    """The answer to its `done`; raises `ApiError` for every other end. Empty batches are signs of life."""
    position = 0
    async with aclosing(gateway.follower.events(asked.user_id, asked.request_id)) as batches:
        async for batch in batches:
            said = [event for event in batch if event.type is not EventType.NOTICE]
            for event in said:
                if event.error is not None:
                    raise ApiError(event.error.code, event.error.message)
                if (event.index or 0) < position:
                    raise _elsewhere(asked, "a part of the answer was taken back")
                position = event.next_index
            yield said
            if said and said[-1].is_end:
                return
    raise _elsewhere(asked, "this gateway stops")


def _elsewhere(asked: Asked, why: str) -> ApiError:
    message = f"{why}; the answer is at /v1/requests/{asked.request_id}"
    return ApiError(ErrorCode.UNAVAILABLE, message, retry_after_s=1)


async def _first(events: AsyncGenerator[list[TokenEvent], None]) -> list[TokenEvent]:
    """What is said first: until then a failure can still be the status of the reply."""
    try:
        async for batch in events:
            if batch:
                return batch
    except BaseException:
        await events.aclose()
        raise
    return []


async def _chunks(
    reply: ChatReply, first: list[TokenEvent], events: AsyncGenerator[list[TokenEvent], None]
) -> AsyncGenerator[bytes, None]:
    yield _chunk(reply.first_chunk()) + _said(reply, first)
    try:
        async with aclosing(events):
            async for batch in events:
                yield _said(reply, batch) or _LIFE
    except ApiError as error:
        yield _chunk(error.body)
        return
    yield _DONE


def _said(reply: ChatReply, batch: list[TokenEvent]) -> bytes:
    return b"".join(_chunk(chunk) for event in batch for chunk in reply.chunks(event))


def _chunk(content: object) -> bytes:
    return b"data: %b\n\n" % msgspec.json.encode(content)
