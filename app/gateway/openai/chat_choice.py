"""One choice of a chat completion: the answer to one request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from app.gateway.openai.reasoning_part import ReasoningPart
from app.wire.event import Logprob, TokenEvent
from app.wire.request import Request
from app.wire.tools import ToolCall, ToolCallDelta, ToolMode
from models.interface.generation import FinishReason, Usage
from models.text.token_texts import bytes_of

# OpenAI's clients know no other reasons; `parley` contains the actual one.
REASONS = {
    FinishReason.STOP: "stop",
    FinishReason.LENGTH: "length",
    FinishReason.CANCELLED: "stop",
    FinishReason.DEADLINE: "length",
    FinishReason.FILTERED: "content_filter",
    FinishReason.PARTIAL: "length",
    FinishReason.TOOL_CALLS: "tool_calls",
}


class ChatChoice:
    def __init__(self, number: int, request: Request) -> None:
        self.usage: Usage | None = None
        self._number = number
        self._request = request
        self._reason: FinishReason | None = None
        self._texts: list[str] = []
        self._reasonings: list[str] = []
        self._reasoning = ReasoningPart()
        self._logprobs: list[msgspec.Raw] = []
        self._prompt_logprobs: tuple[Logprob, ...] = ()
        self._calls: tuple[ToolCall, ...] = ()
        self._notices: list[str] = []

    @property
    def request_id(self) -> str:
        return self._request.request_id

    @property
    def shows_calls(self) -> bool:
        """Whether the client runs the tools; it would run those that others run a second time."""
        return self._request.tool_mode is ToolMode.CLIENT

    @property
    def parley(self) -> dict[str, Any]:
        return {
            "request_id": self._request.request_id,
            "conversation_id": self._request.conversation_id,
            "finish_reason": self._reason,
            **({"notices": self._notices} if self._notices else {}),
        }

    def add(self, event: TokenEvent, *, keep: bool) -> Sequence[Logprob]:
        """Returns the log probabilities of its text."""
        logprobs = self._reasoning.logprobs_of_text(event)
        self._reason = event.finish_reason or self._reason
        self.usage = event.usage or self.usage
        self._calls = event.tool_calls or self._calls
        if event.notice is not None:
            self._notices.append(event.notice.code)
        if keep:
            self._texts.append(event.text or "")
            self._reasonings.append(event.reasoning or "")
            self._logprobs += logprob_entries(logprobs)
            self._prompt_logprobs = event.prompt_logprobs or self._prompt_logprobs
        return logprobs

    @property
    def reasoning_tokens(self) -> int:
        return self._reasoning.tokens

    @property
    def prompt_logprobs(self) -> list[dict[str, Any] | None] | None:
        return prompt_logprobs_of(self._request, self._prompt_logprobs)

    def delta(self, delta: dict[str, Any], logprobs: Any = None, *, finish: bool = False) -> dict[str, Any]:
        reason = REASONS[self._reason] if finish and self._reason else None
        return {"index": self._number, "delta": delta, "finish_reason": reason, "logprobs": logprobs}

    @property
    def whole(self) -> dict[str, Any]:
        assert self._reason is not None, "the choice has not ended in `done`"
        text = "".join(self._texts)
        message: dict[str, Any] = {"role": "assistant", "content": text, "refusal": None}
        if reasoning := "".join(self._reasonings):
            message["reasoning_content"] = reasoning
        if self._calls:
            message["content"] = text or None
            message["tool_calls"] = [_tool_call(call) for call in self._calls]
        return {
            "index": self._number,
            "message": message,
            "finish_reason": REASONS[self._reason],
            "logprobs": _content(self._logprobs),
            "parley": self.parley,
        }


def tool_call_chunks(deltas: Sequence[ToolCallDelta]) -> list[dict[str, Any]]:
    """Parts of calls, as a chunk contains them. A call has one entry: some clients keep the last of an index only."""
    joined: dict[int, ToolCallDelta] = {}
    for delta in deltas:
        first = joined.get(delta.index)
        joined[delta.index] = (
            delta if first is None else msgspec.structs.replace(first, arguments=first.arguments + delta.arguments)
        )
    return [_tool_call_chunk(delta) for delta in joined.values()]


def _tool_call_chunk(delta: ToolCallDelta) -> dict[str, Any]:
    if delta.id is None:
        return {"index": delta.index, "function": {"arguments": delta.arguments}}
    function = {"name": delta.name, "arguments": delta.arguments}
    return {"index": delta.index, "id": delta.id, "type": "function", "function": function}


def _tool_call(call: ToolCall) -> dict[str, Any]:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


def logprobs_of(logprobs: Sequence[Logprob] | None) -> dict[str, Any] | None:
    return _content(logprob_entries(logprobs or ()))


def _content(entries: Sequence[msgspec.Raw]) -> dict[str, Any] | None:
    return {"content": entries, "refusal": None} if entries else None


def logprob_entries(logprobs: Sequence[Logprob]) -> list[msgspec.Raw]:
    """One entry a token, encoded as it comes: the log probabilities of a long answer would take a second at its end."""
    return [msgspec.Raw(msgspec.json.encode(_logprob(one, with_top=True))) for one in logprobs]


def prompt_logprobs_of(request: Request, logprobs: Sequence[Logprob]) -> list[dict[str, Any] | None] | None:
    """In vLLM's format: nothing for the first token, then a dictionary by token id; None if not requested."""
    if request.prompt_logprobs is None:
        return None
    return [None, *({str(rival.token): _ranked(rival, rank) for rival, rank in _by_rank(one)} for one in logprobs)]


def _by_rank(one: Logprob) -> list[tuple[Logprob, int | None]]:
    """The token itself, then the likeliest ones."""
    return [(one, one.rank), *((rival, at) for at, rival in enumerate(one.top, 1) if rival.token != one.token)]


def _ranked(one: Logprob, rank: int | None) -> dict[str, Any]:
    return {"logprob": one.logprob, "rank": rank, "decoded_token": one.text}


def _logprob(one: Logprob, *, with_top: bool) -> dict[str, Any]:
    entry: dict[str, Any] = {"token": one.text, "logprob": one.logprob, "bytes": list(bytes_of(one.text))}
    if with_top:
        entry["top_logprobs"] = [_logprob(rival, with_top=False) for rival in one.top]
    return entry
