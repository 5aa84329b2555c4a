"""What a conversation remembers, and when it expires.

A request sees the conversation as of its record's timestamp, not as of the current time. A request that is answered
again after a crash therefore gets the same prompt.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from tables.records import Activity, Conversation, KeptTurn, encode

# A changelog record must stay far below the 1 MiB that a broker accepts by default.
MAX_BYTES = 512 * 1024


@dataclass(frozen=True, slots=True)
class MemoryRules:
    """How many turns are remembered (`turns`), and for how long after the last one (`ttl_ms`)."""

    turns: int
    ttl_ms: int

    def expired(self, conversation: Conversation | Activity, at: int) -> bool:
        return at - conversation.last_activity > self.ttl_ms

    def visible(self, conversation: Conversation | None, at: int, last: str | None = None) -> tuple[KeptTurn, ...]:
        """The turns that a request of the time `at` sees, oldest first.

        `last`: the request whose turn is the last one that it sees; nothing is seen if there is no such turn.
        """
        if conversation is None or self.turns == 0 or self.expired(conversation, at):
            return ()
        turns = conversation.turns[-self.turns :]
        return turns if last is None else _branch(turns, last)

    def remember(self, conversation: Conversation | None, turn: KeptTurn, at: int) -> Conversation:
        """Append the `turn` of a request of the time `at`, or put it where its answer has waited (`KeptTurn.open`);
        does nothing if the turn is there already.

        A turn whose steps contain the calls in which an earlier one ended contains that one, and replaces it.
        """
        known = self.visible(conversation, at)
        same = next((one for one in known if one.request_id == turn.request_id), None)
        if conversation is not None and same is not None:
            if not same.open:
                return conversation
            turns = tuple(turn if one is same else one for one in known)
            last = max(turn.at, conversation.last_activity)
            return msgspec.structs.replace(conversation, last_activity=last, turns=_within_limit(turns))
        contained = {call.id for step in turn.steps for call in step.calls}
        replaced = next((one for one in known if one.open_calls & contained), None)
        if replaced is not None:
            known = tuple(one for one in known if one is not replaced)
            turn = msgspec.structs.replace(turn, after=replaced.after)
        turns = (*known, turn)[-self.turns :] if self.turns else ()
        origin = None if conversation is None else conversation.origin
        return Conversation(last_activity=turn.at, turns=_within_limit(turns), origin=origin)


def _branch(turns: tuple[KeptTurn, ...], last: str) -> tuple[KeptTurn, ...]:
    """The turn of the request `last` and those that precede it, oldest first."""
    positions = {turn.request_id: position for position, turn in enumerate(turns)}
    branch: list[KeptTurn] = []
    position = positions.get(last)
    while position is not None:
        turn = turns[position]
        branch.append(turn)
        before = positions.get(turn.after) if turn.after else position - 1
        position = before if before is not None and 0 <= before < position else None
    return tuple(reversed(branch))


def _within_limit(turns: tuple[KeptTurn, ...]) -> tuple[KeptTurn, ...]:
    while len(turns) > 1 and len(encode(turns)) > MAX_BYTES:
        turns = turns[1:]
    return turns
