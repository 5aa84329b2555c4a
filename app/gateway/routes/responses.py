"""`/v1/responses`, for OpenAI clients."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from app.gateway.bodies.openapi import EVENTS, replies, shape
from app.gateway.bodies.reading import read_parameters, schema_of
from app.gateway.gateway import gateway_of
from app.gateway.openai.exchange import Exchange
from app.gateway.openai.responses_body import ResponsesBody
from app.gateway.openai.responses_given import given_of
from app.gateway.openai.responses_reply import ResponsesReply

router = APIRouter(prefix="/v1", tags=["openai"])

_RESPONSE = shape(id="string", object="string", created_at="integer", status="string", model="string", output="array")


@router.post(
    "/responses",
    openapi_extra=schema_of(ResponsesBody),
    responses=replies({**_RESPONSE, **EVENTS}, 404, 413, 415, 500, 504),
)
async def respond(request: Request) -> Response:
    """Answer `input`, complete or as a stream; `previous_response_id` continues the conversation of that response."""
    gateway = gateway_of(request)
    caller = await gateway.access.caller(request)
    body, ignored = await read_parameters(request, ResponsesBody)
    identity = caller.identity_of(body.user_id, body.user)
    exchange = Exchange(gateway, request, caller, identity, ignored)
    asked = await exchange.admit([body.request(identity, store=gateway.settings.gateway_store)])
    given = given_of(body, gateway.models.default)
    reply = ResponsesReply(asked[0], given)
    return await exchange.answer(asked, reply, stream=body.stream, headers=[given.header])
