"""Record the attempts to answer a replayed request (quarantine.py)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from app.wire.event import ATTEMPT, EventType, Notice, TokenEvent

if TYPE_CHECKING:
    from app.delivery.inflight import InFlight
    from app.delivery.resume.tokens import TokenLog


async def write_attempt(tokens: TokenLog, inflight: InFlight, number: int) -> None:
    """Record the number of attempts, and return once the broker has it."""
    request = inflight.accepted.request
    event = TokenEvent(
        type=EventType.NOTICE,
        request_id=request.request_id,
        user_id=request.user_id,
        conversation_id=request.conversation_id,
        index=inflight.attempts.from_index,
        notice=Notice(ATTEMPT, "the request is tried again", {"attempt": number}),
    )
    await tokens.delivered([await tokens.send(event, inflight.accepted.record.key, inflight.trace_headers)])
