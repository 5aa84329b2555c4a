"""`/v1/requests`: send a request, read its answer, follow it, cancel it."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from app.gateway.asking.answer_stream import AnswerStreams, headers_of, index_after, wants_events
from app.gateway.asking.ask import AskBody
from app.gateway.asking.gateway import Gateway, gateway_of
from app.gateway.asking.openapi import EVENTS, replies, schema_of, shape
from app.gateway.asking.reading import read_parameters
from app.gateway.callers.access import Caller
from app.gateway.callers.identity import Identity
from app.gateway.edge.errors import ApiError, invalid, json_response
from app.gateway.edge.while_connected import while_connected
from app.reader import Answer
from app.wire.error import ErrorCode
from app.wire.event import WAITING
from app.wire.ids import REQUEST_ID_FORM, is_request_id

router = APIRouter(prefix="/v1/requests", tags=["requests"])

_MAYBE = ["string", "null"]
_ASKED = shape(request_id="string", user_id="string", conversation_id="string", events="string")
_SO_FAR = shape(
    request_id="string",
    user_id="string",
    conversation_id="string",
    status="string",
    index="integer",
    text="string",
    tool_calls=["array", "null"],
    finish_reason=_MAYBE,
    usage=["object", "null"],
    error=["object", "null"],
    model_version=_MAYBE,
)
_CANCELLING = shape(request_id="string", status="string")


@router.post(
    "",
    status_code=202,
    openapi_extra=schema_of(AskBody),
    responses={**replies(_ASKED, 413, 415, status=202), **replies(EVENTS)},
)
async def ask(request: Request) -> Response:
    """Send a request to Kafka. With `Accept: text/event-stream` the reply is the stream of the answer's events."""
    gateway = gateway_of(request)
    caller = await gateway.access.caller(request)
    body, ignored = await read_parameters(request, AskBody)
    body.check_prompt(ignored)
    identity = caller.identity(body.user_id)
    if wants_events(request):
        return await AnswerStreams(gateway, caller, identity).ask(request, body, ignored)
    asked = body.request(identity, store=gateway.settings.gateway_store, conversation=caller.conversation)
    (asked,) = await gateway.admit(identity, [asked])
    await gateway.request_producer.ask(asked, is_new=body.request_id is None)
    reply = {
        "request_id": asked.request_id,
        "user_id": identity.user,
        "conversation_id": asked.conversation_id,
        "events": f"/v1/requests/{asked.request_id}/events",
    }
    return json_response(reply, 202, headers_of(asked, ignored))


@router.get("/{request_id}", responses=replies(_SO_FAR, 404))
async def read_so_far(request: Request, request_id: str) -> Response:
    """The answer so far."""
    gateway, identity = await _of_user(request, request_id)
    conversation_id = gateway.sent.conversation(identity.user_id, request_id)
    answer = await while_connected(request, gateway.follower.answer(identity.user_id, request_id))
    waits = None
    if answer is None or answer.end is None:
        waits = await while_connected(request, gateway.waiting.of_request(identity.user_id, request_id))
        conversation_id = conversation_id if waits is None else waits.conversation_id
    if answer is None and conversation_id is None:
        raise ApiError(ErrorCode.NOT_FOUND, "no request with this id was found")
    reply = _as_json(answer or Answer(identity.user_id, request_id, conversation_id or ""), identity)
    if waits is not None:
        reply |= {"status": "waiting", "waiting": [wait.details for wait in waits.waits]}
    return json_response(reply)


@router.get("/{request_id}/events", responses=replies(EVENTS))
async def follow(
    request: Request, request_id: str, starting_after: str | None = None, until: str | None = None
) -> Response:
    """The answer's events as server-sent events; an event's `id` is the index after it. With `until=waiting` they end
    with the notice that the answer waits, too.
    """
    gateway, identity, caller = await _of_caller(request, request_id)
    if until not in {None, WAITING}:
        raise invalid("until", f"must be {WAITING}")
    after = index_after(request, starting_after)
    return await AnswerStreams(gateway, caller, identity).follow(request_id, after, until_waiting=until == WAITING)


@router.get("/{request_id}/tool-results", responses=replies(shape(request_id="string", results="array")))
async def tool_results(request: Request, request_id: str) -> Response:
    """The results of the answer's calls, as far as programs on Kafka run its tools and the log still has them."""
    gateway, identity = await _of_user(request, request_id)
    results = await while_connected(request, gateway.archive.tool_results(identity.user_id, request_id))
    return json_response({"request_id": request_id, "results": results})


@router.delete("/{request_id}", status_code=202, responses=replies(_CANCELLING, status=202))
async def cancel(request: Request, request_id: str) -> Response:
    """End the answer; the text so far is kept. The `status` is `cancelling`, or that of an answer that has ended."""
    gateway, identity = await _of_user(request, request_id)
    answer = gateway.live.answer(identity.user_id, request_id)
    if answer is not None and answer.end is not None:
        return json_response({"request_id": request_id, "status": answer.end.type.value}, 202)
    await gateway.request_producer.cancel(identity.user_id, request_id)
    return json_response({"request_id": request_id, "status": "cancelling"}, 202)


async def _of_user(request: Request, request_id: str) -> tuple[Gateway, Identity]:
    gateway, identity, _ = await _of_caller(request, request_id)
    return gateway, identity


async def _of_caller(request: Request, request_id: str) -> tuple[Gateway, Identity, Caller]:
    gateway = gateway_of(request)
    caller = await gateway.access.caller(request)
    identity = caller.identity()
    if not is_request_id(request_id):
        raise invalid("request_id", f"must be {REQUEST_ID_FORM}")
    gateway.limits.admit_lookup(identity)
    return gateway, identity, caller


def _as_json(answer: Answer, identity: Identity) -> dict[str, Any]:
    end = answer.end
    last = end or (answer.segments[-1] if answer.segments else None)
    unfinished = "running" if answer.segments else "queued"
    return {
        "request_id": answer.request_id,
        "user_id": identity.user,
        "conversation_id": answer.conversation_id,
        "status": unfinished if end is None else end.type.value,
        "index": answer.position,
        "text": answer.text,
        "reasoning": answer.reasoning or None,
        "tool_calls": end and end.tool_calls,
        "finish_reason": end and end.finish_reason,
        "usage": end and end.usage,
        "error": end and end.error,
        "model_version": last and last.model_version,
    }
