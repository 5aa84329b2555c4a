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

import dataclasses
import enum
from typing import Any

import msgspec

from models.interface.chat import ChatMessage, ModelCall
from models.interface.generation import Usage
from tables.records import RowChange, Table, encode, key

MAX_ROW_BYTES = 768 * 1024
"""A changelog record must stay below the 1 MiB that a broker accepts by default."""
MAX_ROUNDS_BYTES = 960 * 1024
"""Of the rounds and what else the turn keeps; the rest is for the last text, and for results that never come."""

PROGRESS = encode(["progress"])

BREAK = "\n\n"
"""Between the texts of two rounds."""


class ToolOutcome(msgspec.Struct, frozen=True):
    """What the model reads as the result of a call."""

    call_id: str
    content: str


class ApprovalState(enum.StrEnum):
    """`asked` until somebody has decided, or the time is over."""

    ASKED = "asked"
    APPROVED = "approved"
    EDITED = "edited"
    REJECTED = "rejected"
    EXPIRED = "expired"


class Approval(msgspec.Struct, frozen=True, omit_defaults=True):
    """Of a call that is made only once somebody has approved it. A call that is `asked` is on no topic.

    by: The desk that may approve, or `user`.
    until: When its time is over; once the call is made, that of its tool.
    time_ms: How long the tool has; 0 if the decision is the result and there is no call (app/features/programs).
    is_made_at_last: It is made if nobody decides.
    parameters, description: The schema of its arguments, and what the tool does.
    question: What the user said last, where desks are to read it.
    decided_by: Who has decided.
    asked: The arguments of the model, if they were edited.
    """

    call_id: str
    by: str
    until: int
    time_ms: int
    is_made_at_last: bool = False
    parameters: dict[str, Any] | None = None
    description: str = ""
    question: str = ""
    state: ApprovalState = ApprovalState.ASKED
    decided_by: str = ""
    asked: str | None = None

    @property
    def is_asked(self) -> bool:
        return self.state is ApprovalState.ASKED


class AskedAgent(msgspec.Struct, frozen=True):
    """Of a call that is a request of an agent and has its id; without an agent it waits until its time is over."""

    call_id: str
    agent: str
    until: int


class AddedWords(msgspec.Struct, frozen=True):
    """What a later request says while an answer runs (app/features/steering.py)."""

    request_id: str
    text: str


class ToolRound(msgspec.Struct, frozen=True):
    """A round that ended in `calls`: `reasoning` and `text`, and how many tokens the answer has up to its `end`. The
    `words` stand behind the results.
    """

    end: int
    text: str
    calls: tuple[ModelCall, ...]
    usage: Usage
    asked_at: int
    expires_at: int
    outcomes: tuple[ToolOutcome, ...] = ()
    reasoning: str = ""
    approvals: tuple[Approval, ...] = ()
    agents: tuple[AskedAgent, ...] = ()
    words: tuple[AddedWords, ...] = ()

    def approval(self, call_id: str) -> Approval | None:
        return next((one for one in self.approvals if one.call_id == call_id), None)

    def until(self, call_id: str) -> int:
        """When the time of this call is over, or that of its approval."""
        agent = next((one for one in self.agents if one.call_id == call_id), None)
        other = agent or (self.approval(call_id) if self.approvals else None)
        return self.expires_at if other is None else other.until

    @property
    def asked(self) -> tuple[ModelCall, ...]:
        """The calls that nobody has decided about."""
        asked = {one.call_id for one in self.approvals if one.is_asked}
        return tuple(call for call in self.missing if call.id in asked) if asked else ()

    @property
    def missing(self) -> tuple[ModelCall, ...]:
        """The calls without a result."""
        known = {one.call_id for one in self.outcomes}
        return tuple(call for call in self.calls if call.id not in known)

    @property
    def messages(self) -> tuple[ChatMessage, ...]:
        """The calls, their results in the order of the calls, and what the user has added."""
        content = {one.call_id: one.content for one in self.outcomes}
        known = (call for call in self.calls if call.id in content)
        results = (ChatMessage("tool", content[call.id], call_id=call.id, name=call.name) for call in known)
        words = (ChatMessage("user", one.text) for one in self.words)
        said = ChatMessage("assistant", self.text, calls=self.calls, reasoning=self.reasoning)
        return (*((said,) if self.text or self.calls else ()), *results, *words)


class ToolRounds(msgspec.Struct, frozen=True):
    """The rounds of one answer; `at` is the time of its request. Rows of older workers do not name its conversation."""

    at: int = 0
    rounds: tuple[ToolRound, ...] = ()
    conversation_id: str = ""
    tenant: str | None = None

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
    def asked_calls(self) -> tuple[ModelCall, ...]:
        """The calls about which nobody has decided."""
        return self.rounds[-1].asked if self.rounds else ()

    @property
    def approvals(self) -> tuple[Approval, ...]:
        return tuple(approval for one in self.rounds for approval in one.approvals)

    @property
    def agents(self) -> tuple[AskedAgent, ...]:
        return tuple(agent for one in self.rounds for agent in one.agents)

    @property
    def waiting_agents(self) -> tuple[AskedAgent, ...]:
        """Those whose answers are missing."""
        missing = {call.id for call in self.missing}
        return tuple(one for one in self.rounds[-1].agents if one.call_id in missing) if missing else ()

    @property
    def is_rejected(self) -> bool:
        """Whether a call of the last round was not made."""
        last = self.rounds[-1].approvals if self.rounds else ()
        return any(one.state in {ApprovalState.REJECTED, ApprovalState.EXPIRED} for one in last)

    @property
    def due_at(self) -> int:
        """When the time of the next missing result or approval is over."""
        last = self.rounds[-1]
        return min((last.until(call.id) for call in last.missing), default=last.expires_at)

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

    def with_words(self, words: AddedWords) -> ToolRounds:
        """With these behind the results of the last round."""
        last = msgspec.structs.replace(self.rounds[-1], words=(*self.rounds[-1].words, words))
        return msgspec.structs.replace(self, rounds=(*self.rounds[:-1], last))

    def with_approval(self, approval: Approval, arguments: str | None = None) -> ToolRounds:
        """With another state of an approval of the last round, and the arguments that were edited."""
        last = self.rounds[-1]
        approvals = tuple(approval if one.call_id == approval.call_id else one for one in last.approvals)
        calls = last.calls
        if arguments is not None:
            calls = tuple(
                dataclasses.replace(call, arguments=arguments) if call.id == approval.call_id else call
                for call in calls
            )
        last = msgspec.structs.replace(last, approvals=approvals, calls=calls)
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
    return len(encode(rounds)) <= min(MAX_ROW_BYTES, MAX_ROUNDS_BYTES - beside)
