"""The status of an erasure as the gateway reports it: what is done, what remains, and until when logs may hold
copies.
"""

from __future__ import annotations

from typing import Any

from app.gateway.erasure.erasures import ErasureBook
from app.settings import Settings
from app.settings.kafka import COMPACTION_LAG_S, SEGMENT_S
from tables.erasures import Scope


def report(erasures: ErasureBook, scope: Scope, settings: Settings, partitions: int) -> dict[str, Any]:
    at = erasures.of(scope)
    if not at:
        return {"status": "none", "erased_at": None, "remaining": [], "logs": {}}
    remaining: list[dict[str, Any]] = []
    progress = erasures.progress(scope)
    if progress is not None:
        for part, done in (("memory", progress.forgotten), ("search", progress.indexed)):
            if len(done) < partitions:
                remaining.append({"part": part, "partitions_done": len(done), "partitions": partitions})
    return {
        "status": "erasing" if remaining else "done",
        "erased_at": at,
        "remaining": remaining,
        "logs": {
            "changelogs": at + COMPACTION_LAG_S * 1000,
            "requests": at + _kept_ms(settings.requests_retention_s),
            "tokens": at + _kept_ms(settings.tokens_retention_s),
            "turns": at + _kept_ms(settings.turns_retention_s),
            "tool-calls": at + _kept_ms(settings.requests_retention_s),
            "tool-results": at + _kept_ms(settings.requests_retention_s),
            "dead-letters": at + _kept_ms(settings.turns_retention_s),
        },
    }


def _kept_ms(retention_s: int) -> int:
    """Kafka deletes whole segments, so a record may stay until its segment exceeds the retention."""
    return (retention_s + min(SEGMENT_S, retention_s)) * 1000
