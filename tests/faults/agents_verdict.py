"""The verdict on agents: what a request that names one is, and what an answer may read of those whom it has asked."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from app.delivery.resume.answer_log import call_id
from app.features.agents.asking import ASKED_BY, TOO_DEEP
from app.features.tool_rounds import CANCELLED
from app.features.waits.approvals import LATE
from app.policy.agents import MOST_DEEP, AgentRules
from app.reader import Answer, ReaderRule
from app.wire.codec import decode
from app.wire.event import TOOL_CALLS, EventType, TokenEvent
from app.wire.tools import TOOL_ROUNDS
from models.interface.generation import FinishReason
from tables.tool_calls import BREAK

Key = tuple[str, str]
TOOLS = [{"type": "function", "function": {"name": "look_up"}}]
_OWN = {FinishReason.STOP, FinishReason.LENGTH}
_CLOCKS_MS = 2000
_STOPPED_MS = 3_000
"""How long after the end of who has asked an agent may still come to an end of its own."""


def as_agent_of(request: dict, agents: Mapping[str, AgentRules]) -> dict:
    """The request with what its agent brings."""
    rules = agents.get(request.get("agent", ""))
    if rules is None:
        return request
    made = dict(request)
    if rules.system:
        said = made.get("messages")
        if said is None:
            said = [{"role": "user", "content": made["prompt"]}]
            made["continue_conversation"] = True
        made["messages"] = [{"role": "system", "content": rules.system}, *said]
    return made | ({"tools": TOOLS, "tool_mode": "kafka"} if rules.tools else {})


@dataclass(frozen=True, slots=True)
class Asked:
    """An agent's request, as its first record has it."""

    asker: Key
    depth: int
    at: int
    request: dict[str, Any]


class Askings:
    """Who has asked whom, by the topics alone. `repeats` are records that no worker has written, by their places."""

    def __init__(self, requests: Iterable[Any], tokens: Iterable[Any], repeats: Iterable[tuple[int, int]] = ()) -> None:
        self.asked: dict[Key, Asked] = {}
        self.roots: dict[Key, dict[str, Any]] = {}
        self.written: Counter[Key] = Counter()
        self._said: defaultdict[Key, list[tuple[int, int]]] = defaultdict(list)
        """When the broker had each event of an answer, and when its worker wrote it."""
        self._repeats = {*repeats}
        for record in requests:
            self._read_request(record)
        self.rule = ReaderRule(remember=1 << 60)
        self.called: defaultdict[Key, dict[str, None]] = defaultdict(dict)
        for record in tokens:
            event = decode(TokenEvent, record.value, record.headers)
            self.rule.read(record.partition, record.offset, event)
            self._said[event.user_id or "", event.request_id or ""].append((record.timestamp, event.timestamp or 0))
            if event.notice is not None and event.notice.code == TOOL_CALLS:
                calls: Any = (event.notice.details or {})["calls"]
                self.called[event.user_id or "", event.request_id or ""] |= {one["id"]: None for one in calls}
        for key, one in self.asked.items():
            self.called[one.asker][key[1]] = None

    def _read_request(self, record: Any) -> None:
        headers = dict(record.headers)
        try:
            request = json.loads(record.value or b"")
            key = (request["user_id"], request["request_id"])
        except (ValueError, KeyError, TypeError):
            return
        if ASKED_BY not in headers:
            self.roots.setdefault(key, request)
            return
        depth, _, asker = headers[ASKED_BY].decode().partition("/")
        self.asked.setdefault(key, Asked((key[0], asker), int(depth), record.timestamp, request))
        if "woken" not in headers and (record.partition, record.offset) not in self._repeats:
            self.written[key] += 1

    def end(self, key: Key) -> TokenEvent | None:
        answer = self.rule.answers.get(key)
        return None if answer is None else answer.end

    def _depth(self, key: Key) -> int:
        return self.asked[key].depth if key in self.asked else 0

    def results(self, within_ms: int) -> dict[Key, dict[str, tuple[str, ...]]]:
        """What each answer may have read as the results of its calls."""
        return {
            key: {call: tuple(self._texts(key, call, within_ms, is_last=call == calls[-1])) for call in calls}
            for key in [*self.called]
            if (calls := self._calls_of(key))
        }

    def _calls_of(self, key: Key) -> list[str]:
        """Who is too deep asks nobody: its calls are known by its notices, of which a kill may lose one, by the breaks
        in its text, and by its length if it came to an end.
        """
        calls, end, answer = [*self.called[key]], self.end(key), self.rule.answers.get(key)
        if self._depth(key) < MOST_DEEP or answer is None:
            return calls
        numbers = [number for number in range(TOOL_ROUNDS) if call_id(*key, number) in calls]
        count = max([answer.text.count(BREAK), *(number + 1 for number in numbers)])
        if end is not None and end.finish_reason in _OWN:
            most, begun, count = self.asked[key].request["max_tokens"], 0, 0
            while begun < most and count < TOOL_ROUNDS:
                begun, count = begun + (most - begun + 1) // 2, count + 1
        return [call_id(*key, number) for number in range(count)]

    def _texts(self, key: Key, call: str, within_ms: int, *, is_last: bool) -> Iterator[str]:
        child, end = (key[0], call), self.end(key)
        if is_last and (end is None or end.finish_reason not in _OWN):
            yield CANCELLED
        if child not in self.asked:
            yield TOO_DEEP
            return
        asked, answer = self.asked[child], self.rule.answers.get(child)
        last = None if answer is None else answer.end
        over_at = self._called_at(asked) + within_ms
        if last is None or (last.timestamp or 0) > over_at - _CLOCKS_MS:
            yield LATE
        if answer is not None and last is not None:
            yield _result(answer, last, asked.request["agent"])

    def _called_at(self, asked: Asked) -> int:
        """When the asker called at the earliest: once it had said what precedes the record. The agent's time begins
        with the call, and a worker may be suspended between the two.
        """
        before = (written_at for at, written_at in self._said[asked.asker] if at <= asked.at)
        return min(max(before, default=asked.at), asked.at)

    def wrong(self, rules: Mapping[str, AgentRules]) -> Iterator[str]:
        """What the topics rule out of agents."""
        yield from (f"{key} was asked {count} times" for key, count in self.written.items() if count != 1)
        for key, one in self.asked.items():
            request, where = one.request, f"the agent {key}"
            if one.depth != self._depth(one.asker) + 1 or one.depth > MOST_DEEP:
                yield f"{where} is {one.depth} deep"
            if request["agent"] not in rules or request.get("store") is not False:
                yield f"{where} is no request of an agent: {request}"
            root = self.asked[one.asker].request if one.asker in self.asked else self.roots.get(one.asker, {})
            if request.get("tenant") != root.get("tenant") or request.get("priority") != root.get("priority"):
                yield f"{where} is of another tenant or priority than who asks"
            if (yet := self._outlives(key, one)) is not None:
                yield f"{where} came to its own end {yet} ms after that of who asked"
        for key, calls in self.called.items():
            unasked = [call for call in calls if (key[0], call) not in self.asked]
            if unasked and self._depth(key) < MOST_DEEP:
                yield f"{key} calls {unasked[0]}, and nobody is asked"

    def _outlives(self, key: Key, one: Asked) -> int | None:
        end, of_asker = self.end(key), self.end(one.asker)
        if end is None or of_asker is None or end.finish_reason not in _OWN:
            return None
        late = (end.timestamp or 0) - (of_asker.timestamp or 0)
        return late if late > _STOPPED_MS else None


def _result(answer: Answer, end: TokenEvent, agent: str) -> str:
    if end.type is EventType.ERROR:
        return f"error: the agent {agent} has failed: {end.error.message if end.error else ''}"
    if end.finish_reason in _OWN:
        return answer.text
    return LATE if end.finish_reason is FinishReason.DEADLINE else f"error: {agent}: {end.finish_reason}"
