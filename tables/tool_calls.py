"""Answers that have called tools over Kafka, and their results: rows of the table `calls`.

An answer with `tool_mode` `kafka` goes in rounds. In each round the model reads the prompt, with the calls and results
of the rounds before, and ends either in text or in calls. A row holds the rounds that ended in calls:

1. The transaction that writes a round's calls to `tool-calls` also writes the round, without results.
2. Each result that counts, and each timeout, is added in a transaction of its own.
3. The transaction that ends the request deletes the row.

After a crash the next owner therefore finds which calls were made and which results count, and decides neither again.
`ResultsPosition` (key `["progress"]`) is how far `tool-results` is read; it is written together with the
results. Times are Unix milliseconds of the broker's clock.
"""

from __future__ import annotations

import msgspec

from models.interface.chat import ChatMessage, ModelCall
from models.interface.generation import Usage
from tables.records import RowChange, Table, encode, key

MAX_ROW_BYTES = 768 * 1024
"""A changelog record must stay below the 1 MiB that a broker accepts by default."""
MAX_TURN_BYTES = 960 * 1024
"""Of the rounds and what else the turn keeps; the rest is for the last text, and for results that never come."""

PROGRESS = encode(["progress"])

BREAK = "\n\n"
"""Between the texts of two rounds."""


class ToolOutcome(msgspec.Struct, frozen=True):
    """What the model reads as the result of a call."""

    call_id: str
    content: str


class ToolRound(msgspec.Struct, frozen=True):
    """A round that ended in `calls`: `reasoning` and `text`, and how many tokens the answer has up to its `end`."""

    end: int
    text: str
    calls: tuple[ModelCall, ...]
    usage: Usage
    asked_at: int
    expires_at: int
    outcomes: tuple[ToolOutcome, ...] = ()
    reasoning: str = ""

    @property
    def missing(self) -> tuple[ModelCall, ...]:
        """The calls without a result."""
        known = {one.call_id for one in self.outcomes}
        return tuple(call for call in self.calls if call.id not in known)

    @property
    def messages(self) -> tuple[ChatMessage, ...]:
        """The calls, and their results in the order of the calls."""
        content = {one.call_id: one.content for one in self.outcomes}
        results = (
            ChatMessage("tool", content[call.id], call_id=call.id, name=call.name)
            for call in self.calls
            if call.id in content
        )
        return (ChatMessage("assistant", self.text, calls=self.calls, reasoning=self.reasoning), *results)


class ToolRounds(msgspec.Struct, frozen=True):
    """The rounds of one answer; `at` is the time of its request. Rows of older workers do not name its conversation."""

    at: int = 0
    rounds: tuple[ToolRound, ...] = ()
    conversation_id: str = ""

    @property
    def asked_at(self) -> int:
        """When the last calls were made."""
        return self.rounds[-1].asked_at if self.rounds else self.at

    @property
    def end(self) -> int:
        """Where the current round begins, as a token index of the answer."""
        return self.rounds[-1].end if self.rounds else 0

    @property
    def text(self) -> str:
        """The answer's text up to there."""
        return BREAK.join(one.text for one in self.rounds if one.text)

    @property
    def calls(self) -> tuple[ModelCall, ...]:
        return tuple(call for one in self.rounds for call in one.calls)

    @property
    def missing(self) -> tuple[ModelCall, ...]:
        return self.rounds[-1].missing if self.rounds else ()

    @property
    def steps(self) -> tuple[ChatMessage, ...]:
        return tuple(message for one in self.rounds for message in one.messages)

    @property
    def usage(self) -> Usage:
        """The sum over the rounds; `completion_tokens` are the tokens of the answer up to the current round."""
        prompts = sum(one.usage.prompt_tokens for one in self.rounds)
        return Usage(prompts, self.end, sum(one.usage.cached_tokens for one in self.rounds))

    def until(self, index: int) -> ToolRounds:
        """The rounds that ended by the token `index` of the answer."""
        return msgspec.structs.replace(self, rounds=tuple(one for one in self.rounds if one.end <= index))

    def asked(self, one: ToolRound) -> ToolRounds:
        return msgspec.structs.replace(self, rounds=(*self.rounds, one))

    def answered(self, outcome: ToolOutcome) -> ToolRounds:
        """With the result of a call of the last round that has none yet."""
        last = msgspec.structs.replace(self.rounds[-1], outcomes=(*self.rounds[-1].outcomes, outcome))
        return msgspec.structs.replace(self, rounds=(*self.rounds[:-1], last))

    def without_results(self, content: str) -> ToolRounds:
        """With `content` as the result of all calls that have none."""
        rounds = self
        for call in self.missing:
            rounds = rounds.answered(ToolOutcome(call.id, content))
        return rounds


NO_ROUNDS = ToolRounds()


class ResultsPosition(msgspec.Struct, frozen=True):
    """`next`: the offset in `tool-results` of the next record to read."""

    next: int = 0


def row(user_id: str, request_id: str, rounds: ToolRounds | None) -> RowChange:
    """The change that writes the row, or deletes it."""
    value = None if rounds is None else encode(rounds)
    return RowChange(Table.CALLS, key(user_id, request_id), value)


def fits(rounds: ToolRounds, beside: int) -> bool:
    """Whether the rounds fit into their row, and into that of a turn that keeps `beside` bytes of its own."""
    return len(encode(rounds)) <= min(MAX_ROW_BYTES, MAX_TURN_BYTES - beside)
