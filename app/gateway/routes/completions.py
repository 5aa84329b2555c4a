"""`/v1/chat/completions` and `/v1/models`, for OpenAI clients."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing

import msgspec
from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from app.gateway.answers.sse import EventStream
from app.gateway.body import read_body, schema_of
from app.gateway.errors import ApiError, json_response
from app.gateway.gateway import gateway_of
from app.gateway.openai.chat_body import ChatBody
from app.gateway.openai.chat_reply import ChatReply
from app.gateway.openai.completion import ChoiceEvents, Completion
from app.gateway.openapi import EVENTS, replies, shape
from app.wire import ErrorCode

router = APIRouter(prefix="/v1", tags=["openai"])

_LIFE = b": waiting\n\n"
_DONE = b"data: [DONE]\n\n"


_COMPLETION = shape(id="string", object="string", created="integer", model="string", choices="array", usage="object")
_MODEL = {"id": "string", "object": "string", "created": "integer", "owned_by": "string"}


@router.post(
    "/chat/completions",
    openapi_extra=schema_of(ChatBody),
    responses=replies({**_COMPLETION, **EVENTS}, 404, 413, 415, 500, 504),
)
async def complete(request: Request) -> Response:
    """Answer `messages`, complete or as a stream.

    Each choice is a request of its own. `parley` contains its id, which can be used to cancel the answer and to read it
    again.
    """
    gateway = gateway_of(request)
    caller = await gateway.access.caller(request)
    body = await read_body(request, ChatBody)
    # With a user's own key, OpenAI's `user` is only a label.
    identity = caller.identity(body.user_id or (body.user if caller.takes_users else None))
    asked = body.requests(identity)
    gateway.admit(identity, len(asked))
    completion = Completion(gateway, asked)
    await completion.send()
    reply = ChatReply(asked, wants_usage=body.wants_usage)
    events = completion.events()
    headers = {"X-Request-Id": asked[0].request_id}
    if not body.stream:
        async with aclosing(events):
            async for number, batch in events:
                reply.add(number, batch)
        return json_response(reply.whole(), headers=headers)
    gateway.limits.open_stream(identity)
    try:
        first = await _first(events)
    except BaseException:
        gateway.limits.close_stream(identity)
        raise
    stream = EventStream(
        _chunks(reply, first, events),
        gateway.settings.gateway_stall_s,
        gateway.metrics,
        lambda: gateway.limits.close_stream(identity),
        caller.valid_s,
    )
    stream.headers.update(headers)
    return stream


@router.get("/models", responses=replies(shape(object="string", data="array")))
async def models(request: Request) -> Response:
    """The models of the settings, and the versions that have answered in the last hour."""
    gateway = gateway_of(request)
    await gateway.access.caller(request)
    return json_response({"object": "list", "data": [_model(name) for name in gateway.models.names()]})


@router.get("/models/{name:path}", responses=replies(shape(**_MODEL), 404))
async def model(request: Request, name: str) -> Response:
    gateway = gateway_of(request)
    await gateway.access.caller(request)
    if name not in gateway.models.names():
        raise ApiError(
            ErrorCode.MODEL_NOT_FOUND, "no model with this name has answered in the last hour", param="model"
        )
    return json_response(_model(name))


def _model(name: str) -> dict[str, object]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "parley"}


async def _first(events: AsyncGenerator[ChoiceEvents, None]) -> ChoiceEvents:
    """Wait for the first events: until then a failure can still become the reply's status."""
    try:
        async for number, batch in events:
            if batch:
                return number, batch
    except BaseException:
        await events.aclose()
        raise
    return 0, []


async def _chunks(
    reply: ChatReply, first: ChoiceEvents, events: AsyncGenerator[ChoiceEvents, None]
) -> AsyncGenerator[bytes, None]:
    yield _joined(reply.first_chunks()) + _joined(reply.chunks(*first))
    try:
        async with aclosing(events):
            async for more in events:
                yield _joined(reply.chunks(*more)) or _LIFE
    except ApiError as error:
        yield _chunk(error.body)
        return
    yield _joined(reply.last_chunks()) + _DONE


def _joined(chunks: Iterable[object]) -> bytes:
    return b"".join(map(_chunk, chunks))


def _chunk(content: object) -> bytes:
    return b"data: %b\n\n" % msgspec.json.encode(content)
