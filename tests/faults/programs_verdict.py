"""The verdict on answers of programs: each step once, with the outcome that its topics have, and its words in order.

Everything is read from the topics: the steps from the records of `tool-calls` that ask a program, its commands from the
first results of these calls, outcomes from what each command has caused.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from app.features.programs.history import is_step_name
from app.features.waits.approvals import LATE, NOT_ASKED, NOT_SLEPT, TIMED_OUT
from app.reader import Answer
from app.wire.codec import decode
from app.wire.error import WireError
from app.wire.event import EventType
from app.wire.tool_records import ToolCallRecord, ToolResultRecord
from models.interface.generation import FinishReason
from models.served.paced import text_of, word
from tables.tool_calls import BREAK

Key = tuple[str, str]
Prompts = Callable[[Key, str], bytes | None]
"""The prompt that a model has read, by its digest."""
IsOwn = Callable[[dict[str, Any]], bool]
"""Whether these steps are those of one program."""

_DECISIONS = {"approved", "edited", "rejected", "expired"}


class ProgramTopics:
    """The calls of each answer in their order, and the first result of each call."""

    def __init__(self, calls: Iterable[Any], results: Iterable[Any]) -> None:
        self.asked: defaultdict[Key, list[dict[str, Any]]] = defaultdict(list)
        self.made: defaultdict[Key, list[ToolCallRecord]] = defaultdict(list)
        self.ids: defaultdict[Key, list[str]] = defaultdict(list)
        self.results: dict[str, str] = {}
        for record in calls:
            call = decode(ToolCallRecord, record.value, record.headers)
            key = (call.user_id, call.request_id)
            if is_step_name(call.name):
                self.asked[key].append(json.loads(call.arguments))
                self.ids[key].append(call.tool_call_id)
            else:
                self.made[key].append(call)
        for record in results:
            try:
                result = decode(ToolResultRecord, record.value, record.headers)
            except WireError:
                continue
            if result.user_id.encode() == record.key:
                self.results.setdefault(result.tool_call_id, result.content)


def wrong_programs(
    requests: Mapping[Key, dict[str, Any]],
    answers: Mapping[Key, Answer],
    topics: ProgramTopics,
    *,
    changed: Collection[Key] = (),
    torn: Collection[Key] = (),
    prompt_of: Prompts = lambda _key, _digest: None,
    is_own: IsOwn = lambda _asked: True,
) -> list[str]:
    """`requests` of programs; `changed` may have met another program, `torn` have lost events."""
    wrong: list[str] = []
    for key, request in requests.items():
        answer = answers.get(key)
        if answer is None or answer.end is None:
            continue  # the verdict on all answers says so
        judge = _OneProgram(key, request, answer, topics)
        found = [*judge.steps()]
        if topics.asked[key] and not is_own(topics.asked[key][-1]):
            found.append("its steps are those of no program")
        if key not in torn:
            found += judge.words(prompt_of)
            found += judge.end(may_fail=key in changed)
        wrong += [f"{key}: {one}" for one in found]
    return wrong


class _OneProgram:
    def __init__(self, key: Key, request: dict[str, Any], answer: Answer, topics: ProgramTopics) -> None:
        self._key, self._request, self._answer, self._topics = key, request, answer, topics
        self._asked, self._ids = topics.asked[key], topics.ids[key]

    def steps(self) -> Iterator[str]:
        ids = [*self._ids, *(call.tool_call_id for call in self._topics.made[self._key])]
        if len({*ids}) < len(ids):
            yield "a call was made twice"
        made = [call.tool_call_id for call in self._topics.made[self._key]]
        before: list[Any] = []
        for number, asked in enumerate(self._asked):
            steps = asked["steps"]
            if len(steps) != number or steps[: len(before)] != before:
                yield f"step {number + 1} was asked for behind other steps"
                return
            if steps:
                yield from self._of_step(number, steps[-1], made)
            before = steps
        if len(made) > (self._last_command() == "call"):
            yield "a call was made by no step"

    def _last_command(self) -> str:
        """What the program has answered last, if that can be read."""
        with suppress(ValueError, IndexError, KeyError, TypeError):
            return str(json.loads(self._topics.results[self._ids[-1]])["command"])
        return ""

    def _of_step(self, number: int, step: dict[str, Any], made: list[str]) -> Iterator[str]:
        command, outcome = step["command"], step["outcome"]
        given = json.loads(self._topics.results[self._ids[number - 1]])
        value = given.pop("value", None)
        if (step["n"], command) != (number, given):
            yield f"step {number} is recorded as another one"
        kind = command["command"]
        if kind == "result" and outcome != value:
            yield f"step {number} has another value"
        elif kind in {"say", "sleep"} and outcome not in {None, f"{NOT_SLEPT}"}:
            yield f"step {number} has an outcome"
        elif kind == "call":
            own = made.pop(0) if made else ""
            result = self._topics.results.get(own, "")
            if outcome not in {result, TIMED_OUT} and not (len(result) > 10_000 and "bytes, the limit" in outcome):
                yield f"step {number} has the outcome of another one"
        elif kind == "approve":
            decision = outcome.get("decision") if isinstance(outcome, dict) else None
            if decision not in _DECISIONS and outcome != NOT_ASKED:
                yield f"step {number} has no decision"
        elif kind == "ask" and not (isinstance(outcome, str) and (outcome.startswith("error:") or outcome)):
            yield f"step {number} has no answer of an agent: {LATE}"

    def _texts(self) -> list[tuple[dict[str, Any], str]]:
        """What steps that are over have written."""
        steps = self._asked[-1]["steps"] if self._asked else []
        texts = {"say": lambda one: one["command"]["text"], "answer": lambda one: one["outcome"]}
        return [(one, texts[kind](one)) for one in steps if (kind := one["command"]["command"]) in texts]

    def words(self, prompt_of: Prompts) -> Iterator[str]:
        """All that was written stands in the answer once and in its order, and the model's words are those it has."""
        text = BREAK.join(part for _, part in self._texts() if part)
        if not self._answer.text.startswith(text):
            yield "the answer has other words than its steps"
        if (
            self._answer.end is not None
            and self._answer.end.finish_reason is FinishReason.STOP
            and self._answer.text != text
        ):
            yield "the answer has words of no step"
        for step, said in self._texts():
            most = step["command"].get("max_tokens") or self._request["max_tokens"]
            if step["command"]["command"] == "answer" and said.count(" w") != most:
                yield f"step {step['n']} has {said.count(' w')} words instead of {most}"
        yield from self._drawn(prompt_of)

    def _drawn(self, prompt_of: Prompts) -> Iterator[str]:
        """Each token behind the beginning of a round is the one that the engine draws for the prompt of that round."""
        prompt: bytes | None = None
        begin = 0
        for event in self._answer.segments:
            if event.prompt_digest is not None:
                prompt, begin = prompt_of(self._key, event.prompt_digest), event.index or 0
            elif not (event.text or "").strip().startswith("w"):
                prompt = None  # what the program says has no prompt
            for at, token in enumerate(event.tokens or ()):
                expected = None if prompt is None else word(prompt, (event.index or 0) + at - begin)
                if expected is not None and (token, text_of(token)) != expected:
                    yield f"token {(event.index or 0) + at} is another one"
                    return

    def end(self, *, may_fail: bool) -> Iterator[str]:
        end = self._answer.end
        assert end is not None
        reason = end.finish_reason
        last = self._last_command()
        if end.type is EventType.DONE and reason is FinishReason.STOP and last != "end":
            yield "the answer has ended before its program"
        if end.type is EventType.DONE and reason is FinishReason.PARTIAL and not may_fail:
            yield "the answer was torn off"
        if last == "fail" and not may_fail:
            yield "a program has changed that has not"
