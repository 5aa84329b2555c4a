"""`/v1/approvals`: the calls that wait for an approval, and the decision about one.

| caller | lists and decides |
|---|---|
| an approver | calls that are up to its desks, of its tenant |
| a user | with `by=user`, the calls that are up to itself |

In development mode every caller is of all desks.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Iterator
from typing import Annotated, Any, Literal

import msgspec
from fastapi import APIRouter
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from app.gateway.answers.approvals import OpenApproval
from app.gateway.asking.gateway import Gateway, gateway_of
from app.gateway.asking.openapi import replies, schema_of, shape
from app.gateway.asking.parameters import ignored_header
from app.gateway.asking.reading import read_parameters
from app.gateway.callers.access import Caller
from app.gateway.edge.errors import ApiError, invalid, json_response
from app.gateway.edge.while_connected import while_connected
from app.policy.tools import BY_USER
from app.wire.arguments import arguments_mistake
from app.wire.control import MAX_ARGUMENTS_BYTES, MAX_REASON_LENGTH, Decide
from app.wire.error import ErrorCode
from app.wire.ids import tenant_of
from app.wire.waits import DecidedWait, Wait, WaitRecord

router = APIRouter(prefix="/v1/approvals", tags=["approvals"])

_DECIDED_S = 10.0
_REST_S = 0.1
"""Between two looks at the list: many calls may come at once."""
_MOST_WAIT_S = 30
_MOST_LISTED = 1000
_MOST_BYTES = 1024 * 1024
_LISTED = shape(approvals="array", decided="array", has_more="boolean", version="string", you="object")
_COUNTED = shape(wait_id="string", decision="string", by=["string", "null"], counted="boolean")
_SENT = shape(wait_id="string", status="string")


class DecisionBody(msgspec.Struct, frozen=True, kw_only=True):
    """arguments: Of `edited`: the call is made with them. An object, or its JSON text.
    reason: Of `rejected`; the model reads it.
    """

    decision: Literal["approved", "edited", "rejected"]
    arguments: dict[str, Any] | str | None = None
    reason: Annotated[str, Meta(max_length=MAX_REASON_LENGTH)] | None = None

    def check(self) -> None:
        if (self.arguments is not None) != (self.decision == "edited"):
            raise invalid("arguments", "belong to the decision edited, and to no other")
        if self.reason is not None and self.decision != "rejected":
            raise invalid("reason", "belongs to the decision rejected")

    @property
    def arguments_text(self) -> str | None:
        return msgspec.json.encode(self.arguments).decode() if isinstance(self.arguments, dict) else self.arguments


@router.get("", responses=replies(_LISTED))
async def approvals(request: Request, by: str | None = None, version: str | None = None, wait_s: int = 0) -> Response:
    """The open ones of the caller's desks, or of the desk `by`, those that wait longest first; `by=user`: those that
    the user decides. `decided` are some that were open lately.

    With the `version` of the reply before, the reply comes when the list is another one, after `wait_s` seconds (30 at
    most) at the latest.
    """
    gateway = gateway_of(request)
    caller = await gateway.access.caller(request)
    identity = caller.identity() if by == BY_USER else caller.decider()
    if by != BY_USER and caller.desks is not None and not (caller.desks if by is None else by in caller.desks):
        raise _forbidden("this needs a key or token of an approver" + (f" of the desk {by}" if by else ""))
    gateway.limits.admit_lookup(identity)
    desks = None if caller.desks is None else sorted(caller.desks)
    you = {"name": identity.user, "desks": desks, "may_name": caller.names_users}
    user_id = identity.user_id if by == BY_USER else None

    def may_see(record: WaitRecord, wait: Wait) -> bool:
        if user_id is not None:
            return wait.by == BY_USER and record.user_id == user_id
        if wait.by is None or wait.by == BY_USER or by not in {None, wait.by}:
            return False
        return caller.decides_in(_tenant(record), wait.by)

    def listed() -> dict[str, Any]:
        shown = [msgspec.json.encode(_shown(one)) for one in gateway.approvals.open if may_see(one.record, one.wait)]
        page = [*_page(shown)]
        decided = [
            {
                "wait_id": one.wait.wait_id,
                "user_id": one.record.user_id,
                "request_id": one.record.request_id,
                "decision": one.decided.decision,
                "by": one.decided.by,
                "arguments": one.decided.arguments,
            }
            for one in gateway.approvals.past
            if may_see(one.record, one.wait)
        ]
        digest = hashlib.blake2b(digest_size=12)
        for raw in (*page, msgspec.json.encode(decided)):
            digest.update(raw)
        return {
            "approvals": [msgspec.Raw(raw) for raw in page],
            "decided": decided,
            "has_more": gateway.approvals.has_more or len(page) < len(shown),
            "version": digest.hexdigest(),
            "you": you,
        }

    async def news() -> dict[str, Any]:
        await gateway.approvals.current()
        reply = listed()
        until = time.monotonic() + min(max(wait_s, 0), _MOST_WAIT_S)
        while reply["version"] == version and await gateway.approvals.change(until - time.monotonic()):
            await asyncio.sleep(_REST_S)
            await gateway.approvals.current()
            reply = listed()
        return reply

    gateway.limits.open_stream(identity)
    try:
        return json_response(await while_connected(request, news()))
    finally:
        gateway.limits.close_stream(identity)


@router.post(
    "/{user_id:any}/{request_id}/{wait_id}",
    openapi_extra=schema_of(DecisionBody),
    responses={**replies(_COUNTED, 404, 413, 415, 422), **replies(_SENT, status=202)},
)
async def decide(request: Request, user_id: str, request_id: str, wait_id: str) -> Response:
    """Decide about a call; the user is named as in Kafka (`tenant/user`). The first decision counts, and the reply says
    which one that is: `counted`, if it is this one. 202: it is sent, and not known yet.
    """
    gateway = gateway_of(request)
    caller = await gateway.access.caller(request)
    body, ignored = await read_parameters(request, DecisionBody)
    body.check()
    decider = caller.decider()
    gateway.limits.admit_lookup(decider)
    record = await while_connected(request, _record(gateway, caller, user_id, request_id))
    decided, wait = _decided(record, wait_id), _wait(record, wait_id)
    own = None
    if decided is not None:
        _check_reader(caller, record, decided)
    else:
        if wait is None:
            raise _nothing_waits()
        own = _decision(caller, decider.user, record, wait, body)
        decided = await while_connected(request, _counted(gateway, own))
    if decided is None:
        return json_response({"wait_id": wait_id, "status": "sent"}, 202, ignored_header(ignored))
    counted = own is not None and (decided.decision, decided.by) == (own.decision, own.by)
    reply = {"wait_id": wait_id, "decision": decided.decision, "by": decided.by, "counted": counted}
    return json_response(reply, headers=ignored_header(ignored))


async def _record(gateway: Gateway, caller: Caller, user_id: str, request_id: str) -> WaitRecord:
    """The newest record of the answer, if the caller may know of it. Raises `ApiError`."""
    tenant = tenant_of(user_id)
    names = [user_id]
    if tenant is None and caller.tenant is not None:
        names.insert(0, f"{caller.tenant}/{user_id}")
    if not any(caller.acts_for(name) or caller.decides_in(tenant_of(name) or "") for name in names):
        raise _forbidden("this needs a key of this user, or one of an approver for its tenant")
    await gateway.approvals.current()
    for name in names:
        record = await gateway.approvals.newest(name, request_id)
        if record is not None and (caller.acts_for(name) or caller.decides_in(_tenant(record))):
            return record
    raise _nothing_waits()


def _decision(caller: Caller, name: str, record: WaitRecord, wait: Wait, body: DecisionBody) -> Decide:
    """The record of what the caller decides. Raises `ApiError` if it may not, or if no worker would take it."""
    is_own = wait.by == BY_USER
    if not (caller.acts_for(record.user_id) if is_own else caller.decides_in(_tenant(record), wait.by)):
        raise _forbidden(
            "the user decides about this call" if is_own else f"the desk {wait.by} decides about this call"
        )
    arguments = body.arguments_text
    if arguments is not None:
        schema = None if wait.parameters is None else msgspec.json.decode(wait.parameters)
        why = arguments_mistake(arguments, schema)
        if len(arguments.encode()) > MAX_ARGUMENTS_BYTES:
            why = f"have more than {MAX_ARGUMENTS_BYTES} bytes"
        if why is not None:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"arguments: {why}", status=422, param="arguments")
    return Decide(
        request_id=record.request_id,
        user_id=record.user_id,
        wait_id=wait.wait_id,
        decision=body.decision,
        by=f"{wait.by}/{record.user_id if is_own else name}",
        arguments=arguments,
        reason=body.reason,
    )


async def _counted(gateway: Gateway, decision: Decide) -> DecidedWait | None:
    """Send the decision, and wait for the one that counts; None if none is known in time. Raises `ApiError`."""
    key = (decision.user_id, decision.request_id)
    until = time.monotonic() + _DECIDED_S
    await gateway.request_producer.decide(decision)
    while True:
        with gateway.approvals.awaited(key) as newest:
            # It may have been read before that is awaited.
            record = await gateway.approvals.newest(*key)
            if (decided := _of_newest(record, decision.wait_id)) is not None:
                return decided
            try:
                async with asyncio.timeout(until - time.monotonic()):
                    await newest
            except TimeoutError:
                return None


def _of_newest(record: WaitRecord | None, wait_id: str) -> DecidedWait | None:
    """The decision, if there is one. Raises `ApiError` if there will be none."""
    decided = None if record is None else _decided(record, wait_id)
    if decided is None and (record is None or _wait(record, wait_id) is None):
        raise _nothing_waits()
    return decided


def _check_reader(caller: Caller, record: WaitRecord, decided: DecidedWait) -> None:
    """Raises `ApiError` if the caller is of another desk than the one that has decided."""
    desk = (decided.by or "").partition("/")[0] or None
    if not (caller.acts_for(record.user_id) or caller.decides_in(_tenant(record), desk)):
        raise _forbidden("another desk has decided about this call")


def _decided(record: WaitRecord, wait_id: str) -> DecidedWait | None:
    return next((one for one in record.decided if one.wait_id == wait_id), None)


def _wait(record: WaitRecord, wait_id: str) -> Wait | None:
    return next((one for one in record.waits if (one.wait_id, one.kind) == (wait_id, "approval")), None)


def _tenant(record: WaitRecord) -> str:
    return record.tenant or tenant_of(record.user_id) or ""


def _shown(one: OpenApproval) -> dict[str, Any]:
    record, wait = one
    return {
        "wait_id": wait.wait_id,
        "user_id": record.user_id,
        "request_id": record.request_id,
        "conversation_id": record.conversation_id,
        "by": wait.by,
        "name": wait.name,
        "arguments": wait.arguments,
        "parameters": None if wait.parameters is None else msgspec.Raw(wait.parameters.encode()),
        "description": wait.description,
        "question": wait.question,
        "since": record.since,
        "until": wait.until,
    }


def _page(shown: list[bytes]) -> Iterator[bytes]:
    size = 0
    for number, raw in enumerate(shown):
        size += len(raw)
        if number and (number == _MOST_LISTED or size > _MOST_BYTES):
            return
        yield raw


def _forbidden(why: str) -> ApiError:
    return ApiError(ErrorCode.UNAUTHORIZED, why, status=403)


def _nothing_waits() -> ApiError:
    return ApiError(ErrorCode.NOT_FOUND, "no call with this id waits for an approval")
