"""Turns for tests of sinks."""

from __future__ import annotations

from typing import Any

from app.wire.turn import Timing, Turn
from models.interface.generation import FinishReason, Usage

NOW = 1_790_000_000_000


def turn_of(user: str, request_id: str = "r", asked_at: int = NOW, **fields: Any) -> Turn:
    usage = Usage(prompt_tokens=3, completion_tokens=2, cached_tokens=0)
    timing = Timing(requested_at=asked_at)
    return Turn(
        request_id=request_id,
        user_id=user,
        **{"conversation_id": "default", "prompt": "hello", "answer": "hi", **fields},
        finish_reason=FinishReason.STOP,
        usage=usage,
        model_version="demo",
        created_at=asked_at + 50,
        timing=timing,
    )
