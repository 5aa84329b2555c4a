"""`/v1/models`."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from app.gateway.asking.gateway import gateway_of
from app.gateway.asking.openapi import replies, shape
from app.gateway.edge.errors import ApiError, json_response
from app.wire.error import ErrorCode

router = APIRouter(prefix="/v1/models", tags=["openai"])

_MODEL = shape(
    id="string",
    object="string",
    created="integer",
    owned_by="string",
    root="string",
    parent=["string", "null"],
    max_model_len=["integer", "null"],
)


@router.get("", responses=replies(shape(object="string", data="array")))
async def models(request: Request) -> Response:
    """The models that workers serve and the caller may use."""
    gateway = gateway_of(request)
    caller = await gateway.access.caller(request)
    await gateway.backlog.observed()
    entries = [gateway.models.entry(name) for name in gateway.models.names() if gateway.may_name(caller, name)]
    return json_response({"object": "list", "data": entries})


@router.get("/{name:any}", responses=replies(_MODEL, 404))
async def model(request: Request, name: str) -> Response:
    gateway = gateway_of(request)
    caller = await gateway.access.caller(request)
    await gateway.backlog.observed()
    if not gateway.models.knows(name) or not gateway.may_name(caller, name):
        message = "no worker serves a model with this name"
        raise ApiError(ErrorCode.MODEL_NOT_FOUND, message, param="model")
    return json_response(gateway.models.entry(name))
