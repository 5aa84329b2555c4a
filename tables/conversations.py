"""What a conversation remembers, and when it forgets.

A request sees the conversation as of its own record's timestamp, never as of the clock: a request that is answered
again after a crash gets the prompt it had the first time.
"""

from __future__ import annotations

from dataclasses import dataclass

from tables.records import Activity, Conversation, Turn, encode

# A changelog record must stay far below the 1 MiB that a broker takes.
MAX_BYTES = 512 * 1024


@dataclass(frozen=True, slots=True)
class MemoryRules:
    """How much is remembered (`turns`) and for how long after the last turn (`ttl_ms`)."""

    turns: int
    ttl_ms: int

    def expired(self, conversation: Conversation | Activity, at: int) -> bool:
        return at - conversation.last_activity > self.ttl_ms

    def recall(self, conversation: Conversation | None, at: int) -> tuple[Turn, ...]:
        """The turns that a request of time `at` builds on, oldest first."""
        if conversation is None or self.turns == 0 or self.expired(conversation, at):
            return ()
        return conversation.turns[-self.turns :]

    def remember(self, conversation: Conversation | None, turn: Turn, at: int) -> Conversation:
        """Append the `turn` of a request of time `at`; a turn that is there already changes nothing."""
        known = self.recall(conversation, at)
        if conversation is not None and any(t.request_id == turn.request_id for t in known):
            return conversation
        turns = (*known, turn)[-self.turns :] if self.turns else ()
        return Conversation(last_activity=turn.at, turns=_within_limit(turns))


def _within_limit(turns: tuple[Turn, ...]) -> tuple[Turn, ...]:
    while len(turns) > 1 and len(encode(turns)) > MAX_BYTES:
        turns = turns[1:]
    return turns
