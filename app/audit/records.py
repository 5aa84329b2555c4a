"""What `audit` gets of a request, a refused record or an erasure. Pure functions without I/O."""

from __future__ import annotations

from app.delivery.accepted import Accepted, RequestKey
from app.delivery.commits.audit_chain import hash_of
from app.delivery.resume.answer_log import AnswerLog
from app.wire.audit import AuditAction, AuditRecord
from app.wire.control import Audit
from app.wire.error import WireError
from app.wire.event import TokenEvent
from app.wire.ids import MAX_USER_LENGTH, tenant_of
from models.interface.chat import ModelCall
from tables.tool_calls import ToolRounds

OPERATOR = "parley"
"""The user of what a worker does by itself."""


def audit_of_request(
    accepted: Accepted, answer: AnswerLog | None, end: TokenEvent, now: int
) -> tuple[AuditRecord, ...]:
    """`answer` is None if the request failed before its answer began."""
    request, plan = accepted.request, accepted.former.plan if answer is None else answer.plan
    outcome = end.error.code if end.error is not None else end.finish_reason
    return (
        AuditRecord(
            action=AuditAction.REQUEST,
            outcome=str(outcome or ""),
            user_id=request.user_id,
            at=now,
            tenant=request.tenant,
            request_id=request.request_id,
            conversation_id=request.conversation_id,
            model_version=end.model_version,
            route=plan.route,
            experiment=plan.experiment,
            arm=plan.arm,
            prompt_tokens=0 if end.usage is None else end.usage.prompt_tokens,
            completion_tokens=0 if end.usage is None else end.usage.completion_tokens,
            prompt_sha256=hash_of(request.question.encode()),
            answer_sha256=hash_of(b"" if answer is None else answer.text.encode()),
            categories=plan.categories,
        ),
    )


def audit_of_refusal(user_id: str, error: WireError, now: int) -> tuple[AuditRecord, ...]:
    """`user_id` comes from the record's key and may be anything."""
    return (
        AuditRecord(
            action=AuditAction.REFUSAL,
            outcome=str(error.code),
            user_id=user_id[:MAX_USER_LENGTH],
            at=now,
            tenant=tenant_of(user_id[:MAX_USER_LENGTH]),
            request_id=error.request_id,
            conversation_id=error.conversation_id if error.request_id is not None else None,
        ),
    )


def audit_of_erasure(user_id: str, conversation_id: str | None, now: int) -> tuple[AuditRecord, ...]:
    """Of a user, or of one conversation."""
    return (
        AuditRecord(
            action=AuditAction.ERASURE,
            outcome="done",
            user_id=user_id,
            at=now,
            tenant=tenant_of(user_id),
            conversation_id=conversation_id,
        ),
    )


def audit_of_retreat(experiment: str, arm: str, now: int) -> tuple[AuditRecord, ...]:
    """An arm of an experiment has lost its users."""
    return (
        AuditRecord(
            action=AuditAction.RETREAT, outcome="out", user_id=OPERATOR, at=now, experiment=experiment, arm=arm
        ),
    )


def audit_of_approval(
    key: RequestKey, rounds: ToolRounds, outcome: str, by: str, call: ModelCall, now: int
) -> AuditRecord:
    """A call waits for an approval, or its wait is over; its arguments are those that count."""
    user_id, request_id = key
    return AuditRecord(
        action=AuditAction.APPROVAL,
        outcome=outcome,
        user_id=user_id,
        at=now,
        tenant=tenant_of(user_id) or rounds.tenant,
        request_id=request_id,
        conversation_id=rounds.conversation_id,
        tool_call_id=call.id,
        by=by,
        arguments_sha256=hash_of(call.arguments.encode()),
    )


def audit_of_gateway(note: Audit) -> tuple[AuditRecord, ...]:
    """What a gateway reports on `controls`."""
    return (
        AuditRecord(
            action=AuditAction(note.action),
            outcome=note.outcome,
            user_id=note.user_id,
            at=note.at,
            tenant=tenant_of(note.user_id) or note.tenant,
            count=note.count,
        ),
    )
