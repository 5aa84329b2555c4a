"""Records of `erasures`: what a sink of Parley's topics has to delete, and must not write again."""

from __future__ import annotations

import msgspec


class Erasure(msgspec.Struct, frozen=True, kw_only=True):
    """Delete what this user has requested up to `erased_at`, also when it arrives later; with a `conversation_id`, only
    in that conversation.

    Of several records about the same the highest `erased_at` counts. Times are Unix milliseconds by the broker's clock.
    """

    user_id: str
    erased_at: int
    created_at: int
    conversation_id: str | None = None
