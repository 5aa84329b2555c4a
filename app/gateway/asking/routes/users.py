"""Users themselves: who a caller is, and the erasure of everything of a user."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from app.gateway.asking.gateway import gateway_of
from app.gateway.asking.openapi import replies, shape
from app.gateway.callers.identity import Identity
from app.gateway.edge.errors import ApiError, json_response
from app.gateway.erasure.report import report
from app.wire.error import ErrorCode
from tables.erasures import Scope

router = APIRouter(prefix="/v1", tags=["history"])


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
