"""`/v1/admin`: for people who operate a tenant, or all of them. What they may do is in the role of their token.

| role | may |
|---|---|
| user | act for itself |
| auditor | see limits and usage of its tenant |
| admin | that, and erase any user of its tenant |

A token is for its tenant, one without a tenant for users without one, and one with the tenant `*` for all tenants. In
development mode, every caller is an admin.
"""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from app.gateway.asking.gateway import gateway_of
from app.gateway.asking.openapi import replies, shape
from app.gateway.callers.keys import CallerRole
from app.gateway.edge.errors import ApiError, json_response
from app.wire.error import ErrorCode
from app.wire.ids import is_user_id, tenant_of
from tables.erasures import Scope

router = APIRouter(prefix="/v1/admin", tags=["admin"])

NO_TENANT = "-"
"""Users without a tenant, in a path."""


@router.get(
    "/tenants/{tenant}",
    responses=replies(
        shape(
            tenant="string",
            limits="object",
            requests_last_minute="number",
            tokens_last_minute="number",
            cost_of_month="number",
        )
    ),
)
async def tenant(request: Request, tenant: str) -> Response:
    """The limits of the tenant, and what it has used; `-` stands for users without a tenant. Use is counted while any
    tenant has a quota.
    """
    gateway = gateway_of(request)
    caller = await gateway.access.caller(request)
    name = "" if tenant == NO_TENANT else tenant
    caller.require(CallerRole.AUDITOR, name)
    return json_response({"tenant": tenant, **gateway.tenants.report(name)})


@router.delete(
    "/users/{user_id:any}", status_code=202, responses=replies(shape(user_id="string", status="string"), status=202)
)
async def erase(request: Request, user_id: str) -> Response:
    """Erase everything of a user, named as in Kafka: `TENANT/USER`."""
    gateway = gateway_of(request)
    caller = await gateway.access.caller(request)
    caller.require(CallerRole.ADMIN, tenant_of(user_id) or "")
    if not is_user_id(user_id):
        raise ApiError(ErrorCode.INVALID_REQUEST, "user_id: must have 1-128 characters", param="user_id")
    gateway.limits.erase(caller.identity(None if caller.is_development else caller.user))
    await gateway.erase(Scope(user_id))
    gateway.audit_trail.administered(caller, f"erase {user_id}")
    return json_response({"user_id": user_id, "status": "erasing"}, 202)
