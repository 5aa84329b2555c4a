"""What the paced engine must say in an answer with tools over Kafka, given the calls and results on their topics."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from app.delivery.resume.answer_log import call_id
from app.features.tool_rounds import CANCELLED
from app.features.waits.approvals import TIMED_OUT
from app.settings import Settings
from app.wire.codec import decode
from app.wire.error import WireError
from app.wire.tool_records import ToolCallRecord, ToolResultRecord
from app.wire.tools import TOOL_ROUNDS
from app.wire.turn import Turn
from models.interface.chat import ChatMessage, ModelCall, PastTurn
from models.interface.generation import FinishReason
from models.served.paced import called, word

Key = tuple[str, str]
NOBODY: Mapping[Key, Mapping[str, Sequence[str]]] = MappingProxyType({})
Build = Callable[[Sequence[ChatMessage], int], Sequence[int]]
"""From the steps after the question, and the index of the next token, to the ids of the prompt."""

APPROVED_TOOL = "refund"
"""Its calls need an approval, where any do."""

_EARLY_MS = 2000
"""A result this long before its call expires must count, or, of a short time, in its first three quarters."""


@dataclass(frozen=True, slots=True)
class Result:
    content: str
    at: int


@dataclass(frozen=True, slots=True)
class ToolTopics:
    """`calls` by request, in the order of their numbers; `results` has the first of each call; `wrong` are requests
    with calls that are on the topic twice, or that have another id than they must have. `asked` are those that have
    waited for an approval and were not made as the model wrote them: what it may read as the result of one that is not
    made. `calls` has them, too, without arguments.
    """

    calls: dict[Key, list[ToolCallRecord]] = field(default_factory=lambda: defaultdict(list))
    results: dict[str, Result] = field(default_factory=dict)
    wrong: list[Key] = field(default_factory=list)
    asked: Mapping[Key, Mapping[str, Sequence[str]]] = field(default_factory=dict)


def read_tool_topics(
    calls: Iterable,
    results: Iterable,
    settings: Settings,
    asked: Mapping[Key, Mapping[str, Sequence[str]]] = NOBODY,
    approved_tool: str = "look_up",
) -> ToolTopics:
    topics = ToolTopics(asked=asked)
    for record in calls:
        call = decode(ToolCallRecord, record.value, record.headers)
        topics.calls[call.user_id, call.request_id].append(call)
    for key, ones in asked.items():
        made_ids = {call.tool_call_id for call in topics.calls.get(key, ())}
        topics.calls[key] += [_not_made(key, one, approved_tool) for one in ones if one not in made_ids]
        numbers = {call_id(*key, number): number for number in range(len(topics.calls[key]))}
        topics.calls[key].sort(key=lambda call, numbers=numbers: numbers.get(call.tool_call_id, len(numbers)))
    for key, made in topics.calls.items():
        if [call.tool_call_id for call in made] != [call_id(*key, number) for number in range(len(made))]:
            topics.wrong.append(key)
    for record in results:
        try:
            result = decode(ToolResultRecord, record.value, record.headers)
        except WireError:
            continue
        if result.user_id.encode() == record.key:
            size, most = len(result.content.encode()), settings.max_prompt_bytes
            refused = f"error: the tool's result has {size} bytes, the limit is {most}"
            content = result.content if size <= most else refused
            topics.results.setdefault(result.tool_call_id, Result(content, record.timestamp))
    return topics


def call_of(prompt: Sequence[int], index: int, names: Sequence[str]) -> ModelCall:
    """The call that the paced engine makes of these tools; of two, either one (tests/faults/plugs.py)."""
    call = called(prompt, index)
    return call if len(names) < 2 else replace(call, name=names[word(prompt, index)[0] % len(names)])


def _not_made(key: Key, call_id: str, name: str) -> ToolCallRecord:
    return ToolCallRecord(
        tool_call_id=call_id,
        name=name,
        arguments="",
        user_id=key[0],
        request_id=key[1],
        conversation_id="",
        created_at=0,
        expires_at=0,
    )


def possible_turns(
    build: Build,
    turn: Turn,
    most: int,
    tokens: Sequence[int],
    calls: Sequence[ToolCallRecord],
    topics: ToolTopics,
    *,
    tools: Sequence[str],
    reasons: bool,
    added: Sequence[tuple[int, str]] = (),
) -> Iterator[PastTurn]:
    """The turns as which such an answer may have ended; none if the engine cannot have written it.

    `tokens` are those on the topic, which may have lost its tail; the turn has all words. `most` is the request's
    `max_tokens`. Each round ends in a call after half of what is left (models/paced), and half of that is reasoning
    if the model `reasons`. `added`: what
    the user has said meanwhile, and behind which token.
    """
    key = (turn.user_id, turn.request_id)
    total = (turn.answer + (turn.reasoning or "")).count(" w") or len(tokens)
    is_stopped = turn.finish_reason in {FinishReason.CANCELLED, FinishReason.DEADLINE}

    def follow(number: int, begin: int, steps: tuple[ChatMessage, ...]) -> Iterator[PastTurn]:
        prompt = build(steps, begin)
        longest = most - begin if number >= TOOL_ROUNDS else (most - begin + 1) // 2
        length = total - begin if number == len(calls) else longest
        written = tokens[begin : begin + length]
        words = [word(prompt, index, turn.model_version) for index in range(length)]
        if [token for token, _ in words[: len(written)]] != list(written):
            return
        text = "".join(part for _, part in words[longest // 2 if reasons else 0 :])
        if number == len(calls):
            yield PastTurn(turn.prompt, text, steps)
            return
        call = calls[number]
        is_asked = call.tool_call_id in topics.asked.get(key, {})
        expected = call_of(prompt, length, tools)
        if (call.name, call.arguments if not is_asked else expected.arguments) != (expected.name, expected.arguments):
            return
        asked = ChatMessage("assistant", text, calls=(ModelCall(call.name, call.arguments, call.tool_call_id),))
        for content in _outcomes(call, topics, is_last=is_stopped and number == len(calls) - 1):
            answered = ChatMessage("tool", content, call_id=call.tool_call_id, name=call.name)
            end = begin + length
            words = tuple(ChatMessage("user", text) for at, text in added if at == end)
            yield from follow(number + 1, end, (*steps, asked, answered, *words))
            if words and end == total:  # the answer may have ended before they went into it
                yield from follow(number + 1, end, (*steps, asked, answered))

    return follow(0, 0, ())


def _outcomes(call: ToolCallRecord, topics: ToolTopics, *, is_last: bool) -> list[str]:
    """What the model may read as the result: the first one, or that there was none in time."""
    if not call.arguments:
        return [*topics.asked[call.user_id, call.request_id][call.tool_call_id]]
    result = topics.results.get(call.tool_call_id)
    found = [] if result is None else [result.content]
    early_ms = min(_EARLY_MS, (call.expires_at - call.created_at) // 4)
    if result is None or result.at > call.expires_at - early_ms:
        found.append(TIMED_OUT)
    return [*found, CANCELLED] if is_last else found
