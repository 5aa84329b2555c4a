"""`/v1/waits`: what of the caller waits, and what is to come."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from app.gateway.asking.gateway import gateway_of
from app.gateway.asking.openapi import replies, shape
from app.gateway.edge.errors import json_response
from app.gateway.edge.while_connected import while_connected
from app.wire.waits import WaitRecord

router = APIRouter(prefix="/v1/waits", tags=["requests"])


@router.get("", responses=replies(shape(waits="array")))
async def waits(request: Request) -> Response:
    """Requests for later and answers that sleep, the next to wake first; `DELETE /v1/requests/{id}` ends one."""
    gateway = gateway_of(request)
    caller = await gateway.access.caller(request)
    identity = caller.identity()
    gateway.limits.admit_lookup(identity)
    found = await while_connected(request, gateway.waiting.of_user(identity.user_id))
    return json_response({"waits": [_shown(one) for one in found]})


def _shown(one: WaitRecord) -> dict[str, object]:
    return {
        "request_id": one.request_id,
        "conversation_id": one.conversation_id,
        "state": one.state,
        "since": one.since,
        "until": one.until,
        "waiting": [wait.details for wait in one.waits],
    }
