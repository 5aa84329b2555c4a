"""What a conversation remembers, and when it expires.

A request sees the conversation as of its record's timestamp, not as of the current time. A request that is answered
again after a crash therefore gets the same prompt.
"""

from __future__ import annotations

from dataclasses import dataclass

from tables.records import Activity, Conversation, Turn, encode

# A changelog record must stay far below the 1 MiB that a broker accepts by default.
MAX_BYTES = 512 * 1024


@dataclass(frozen=True, slots=True)
class MemoryRules:
    """How many turns are remembered (`turns`), and for how long after the last one (`ttl_ms`)."""

    turns: int
    ttl_ms: int

    def expired(self, conversation: Conversation | Activity, at: int) -> bool:
        return at - conversation.last_activity > self.ttl_ms

    def recall(self, conversation: Conversation | None, at: int) -> tuple[Turn, ...]:
        """The turns that a request of the time `at` sees, oldest first."""
        if conversation is None or self.turns == 0 or self.expired(conversation, at):
            return ()
        return conversation.turns[-self.turns :]

    def remember(self, conversation: Conversation | None, turn: Turn, at: int) -> Conversation:
        """Append the `turn` of a request of the time `at`; does nothing if the turn is there already."""
        known = self.recall(conversation, at)
        if conversation is not None and any(t.request_id == turn.request_id for t in known):
            return conversation
        turns = (*known, turn)[-self.turns :] if self.turns else ()
        return Conversation(last_activity=turn.at, turns=_within_limit(turns))


def _within_limit(turns: tuple[Turn, ...]) -> tuple[Turn, ...]:
    while len(turns) > 1 and len(encode(turns)) > MAX_BYTES:
        turns = turns[1:]
    return turns
