"""`/v1/responses`, for OpenAI clients: created, and retrieved, streamed again, cancelled and deleted later."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from app.gateway.asking.gateway import gateway_of
from app.gateway.asking.openapi import EVENTS, replies, schema_of, shape
from app.gateway.asking.parameters import ignored_header
from app.gateway.asking.reading import read_parameters
from app.gateway.edge.errors import invalid, json_response
from app.gateway.edge.while_connected import while_connected
from app.gateway.openai.exchange import Exchange
from app.gateway.openai.item_references import has_references, with_items
from app.gateway.openai.pages import LIST, Order, page_of
from app.gateway.openai.responses_body import ResponsesBody
from app.gateway.openai.responses_given import given_of
from app.gateway.openai.responses_reply import ResponsesReply
from app.gateway.openai.stored_responses import StoredResponse, StoredResponses

router = APIRouter(prefix="/v1", tags=["openai"])

_RESPONSE = shape(id="string", object="string", created_at="integer", status="string", model="string", output="array")
_DELETED = shape(id="string", object="string", deleted="boolean")
_MOST_NUMBER = 2**53


@router.post(
    "/responses",
    openapi_extra=schema_of(ResponsesBody),
    responses=replies({**_RESPONSE, **EVENTS}, 404, 409, 413, 415, 500, 504),
)
async def respond(request: Request) -> Response:
    """Answer `input`, complete or as a stream; `previous_response_id` continues the conversation of that response.

    With `background` the reply does not wait for the answer, and the answer not for its caller.
    """
    gateway = gateway_of(request)
    caller = await gateway.access.caller(request)
    body, ignored = await read_parameters(request, ResponsesBody)
    identity = caller.identity_of(body.user_id, body.user)
    responses = StoredResponses(gateway, caller, identity)
    if has_references(body):
        gateway.limits.admit_lookup(identity)
        body = await while_connected(request, with_items(body, responses))
    exchange = Exchange(gateway, request, caller, identity, ignored, body.in_callers_words)
    given = given_of(body, gateway.models.default)
    asked = await exchange.admit([body.request(identity, store=gateway.settings.gateway_store)])
    if body.background:
        headers = {"X-Request-Id": asked[0].request_id, **ignored_header(ignored)}
        if body.stream:
            return await responses.create_streaming(asked[0], given, headers)
        stored = await responses.create(asked[0], given)
        return json_response(stored.events().response, headers=headers)
    reply = ResponsesReply(asked[0], given)
    return await exchange.answer(asked, reply, stream=body.stream, headers=[given.header])


@router.get("/responses/{response_id:any}/input_items", responses=replies(LIST, 404))
async def input_items(
    request: Request,
    response_id: str,
    after: str | None = None,
    limit: int = 20,
    order: Order = "desc",
) -> Response:
    """The items of the response's `input`, without those of earlier responses."""
    _, stored = await _find(request, response_id)
    return json_response(await page_of(stored.given.input_items(stored.request), after, limit, order))


@router.post("/responses/{response_id:any}/cancel", responses=replies(_RESPONSE, 404))
async def cancel(request: Request, response_id: str) -> Response:
    """End a response of the background; the text so far is kept."""
    responses, stored = await _find(request, response_id)
    return json_response(await while_connected(request, responses.cancel(stored)))


@router.get("/responses/{response_id:any}", responses=replies({**_RESPONSE, **EVENTS}, 404))
async def retrieve(
    request: Request, response_id: str, stream: bool = False, starting_after: str | None = None
) -> Response:
    """The response so far, or the stream of its events behind the sequence number `starting_after`."""
    responses, stored = await _find(request, response_id)
    if not stream:
        return json_response(await while_connected(request, responses.described(stored)))
    return await responses.stream(stored, _number(starting_after))


@router.delete("/responses/{response_id:any}", responses=replies(_DELETED, 404))
async def delete(request: Request, response_id: str) -> Response:
    """Serve the response no more. Its turn stays in the conversation."""
    responses, stored = await _find(request, response_id)
    await responses.delete(stored)
    return json_response({"id": response_id, "object": "response", "deleted": True})


async def _find(request: Request, response_id: str) -> tuple[StoredResponses, StoredResponse]:
    gateway = gateway_of(request)
    caller = await gateway.access.caller(request)
    identity = caller.identity()
    gateway.limits.admit_lookup(identity)
    responses = StoredResponses(gateway, caller, identity)
    return responses, await while_connected(request, responses.find(response_id))


def _number(text: str | None) -> int:
    if text is None:
        return -1
    if not (text.isascii() and text.isdigit()) or len(text) > 16 or int(text) > _MOST_NUMBER:
        raise invalid("starting_after", "must be the sequence_number of an event")
    return int(text)
