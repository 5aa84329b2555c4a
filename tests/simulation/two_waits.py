"""Storms on one answer that waits for two things at once, which end in the same millisecond while its owner dies.

Each of its rounds ends in two calls: of a tool, of an agent, or one that needs an approval. The results, decisions and
agents' ends of a round come within a few milliseconds, most of them in one poll, each with a second one that must not
count. The first run of a seed is left alone; the others are the same up to the step in which the owner is killed, and
have to end as the first: `python -m tests.simulation.two_waits 3000`.
"""

from __future__ import annotations

import json
import random
import sys
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations_with_replacement
from typing import Any
from unittest.mock import patch

from aiokafka import TopicPartition

from app.policy.agents import AgentRules
from app.policy.file import Policy, WaitRules
from app.policy.tools import ApproveRules, ToolRules
from app.wire.codec import WOKEN_HEADER, decode
from app.wire.event import TokenEvent
from app.wire.tool_records import ToolCallRecord
from app.wire.waits import Wait, WaitRecord
from models.interface.generation import End
from models.served import paced
from tables.records import Table
from tests.simulation.broker import Entry
from tests.simulation.faults import kill
from tests.simulation.scenario import Conditions
from tests.simulation.test_directed import Course

PAIRS = [*combinations_with_replacement(("tool", "approval", "agent"), 2)]
DAY_S = 86_400.0
_RULES = {
    "tool": ToolRules(),
    "approval": ToolRules(approve=ApproveRules(by="desk", within_s=900.0)),
    "agent": ToolRules(ask="helper", within_s=900.0),
}
_CLOSE_MS = (0, 0, 0, 0.5, 1, 2, 5)
_BEHIND = 60
"""Steps behind the end of the answer in which it is committed."""
_KNOWN = ("changed", "wrong_calls")
"""The verdict of other storms knows one call a round."""


@dataclass(frozen=True)
class Ended:
    """What is left of the answer, and of its waits."""

    answer: str
    reason: str | None
    results: tuple[str, ...]
    calls: tuple[str, ...]
    decided: tuple[tuple[str, str | None], ...]
    woken: int


class TwoWaits(Course):
    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.chance = random.Random(f"two waits {seed}")
        self.kinds = PAIRS[seed % len(PAIRS)]
        rules = dict(zip(("look_up", "other"), map(_RULES.__getitem__, self.kinds), strict=True))
        policy = Policy(
            waits=WaitRules(park_after_s=self.chance.choice((0.05, 0.3))), tools=rules, agents={"helper": AgentRules()}
        )
        super().__init__(policy, Conditions(ttl_s=30 * DAY_S, sleeps_after_s=0.05), seed)
        self.first_step = self.last_step = 0
        self._told: set[str] = set()
        self._ended: set[str] = set()
        self._read: dict[str, int] = {}
        broker = self.simulation.broker
        for topic, read in (("waits", self._on_wait), ("tool-calls", self._on_call), ("tokens", self._on_token)):
            broker.log(TopicPartition(topic, 0)).readers.append(partial(self._poke, topic, read))
        tools = [{"type": "function", "function": {"name": name}} for name in rules]
        asked = {"prompt": "begin", "max_tokens": 3, "tools": tools, "tool_mode": "kafka", "tool_timeout_ms": 900_000}
        self.send(1.0, request_id="r", **asked)

    def _poke(self, topic: str, read: Any) -> None:
        self.after(0.0, partial(self._entries, topic, read))

    def _entries(self, topic: str, read: Any) -> None:
        entries, self._read[topic] = self.simulation.broker.log(TopicPartition(topic, 0)).read(
            self._read.get(topic, 0), 1000
        )
        for entry in entries:
            if entry.value is not None:
                read(entry)

    def _on_wait(self, entry: Entry) -> None:
        """The answer sleeps with two waits: all of them end at once, but for an agent's, which says when."""
        record = decode(WaitRecord, entry.value or b"")
        if record.request_id != "r" or record.state != "asleep" or len(record.waits) < 2:
            return
        new = [one for one in record.waits if one.wait_id not in self._told]
        self._told.update(one.wait_id for one in new)
        if "agent" not in self.kinds:
            self._end(new, after_s=1.0)
        else:
            self._beside = [one for one in new if one.kind != "answer"]

    _beside: list[Wait] = []  # noqa: RUF012 - replaced, never changed

    def _on_token(self, entry: Entry) -> None:
        event = decode(TokenEvent, entry.value or b"", entry.headers)
        if event.is_end and event.request_id == "r":
            self.last_step = self.last_step or self.simulation.world.steps + _BEHIND
        if event.is_end and event.request_id in self._told:
            beside, self._beside = self._beside, []
            self._end(beside, after_s=0.0)
            self.first_step = self.first_step or self.simulation.world.steps

    def _end(self, waits: list[Wait], after_s: float) -> None:
        for wait in waits:
            chance = random.Random(f"{self.seed} {wait.name} {len(self._ended)}")
            self._ended.add(wait.wait_id)
            self.after(after_s + chance.choice(_CLOSE_MS) / 1000, partial(self._end_one, wait, chance))

    def _end_one(self, wait: Wait, chance: random.Random) -> None:
        self.first_step = self.first_step or self.simulation.world.steps
        if wait.kind == "approval":
            first = chance.choice(("rejected", "rejected", "approved"))
            self._decide(wait, first, "desk/first")
            self._decide(wait, "rejected" if first == "approved" else "approved", "desk/second")
        elif wait.kind == "tool":
            self._answer(wait.wait_id)

    def _on_call(self, entry: Entry) -> None:
        """A call that is approved is answered at once; others when all waits of their round end."""
        call = decode(ToolCallRecord, entry.value or b"", entry.headers)
        if self._kind(call.name) == "approval":
            self.after(0.001, partial(self._answer, call.tool_call_id))

    def _kind(self, name: str) -> str:
        return dict(zip(("look_up", "other"), self.kinds, strict=True))[name]

    def _decide(self, wait: Wait, decision: str, by: str) -> None:
        of = {"type": "decide", "user_id": "u", "request_id": "r", "wait_id": wait.wait_id, "by": by}
        self._write("controls", {**of, "decision": decision})

    def _answer(self, call_id: str) -> None:
        for content in ("result", "another result"):
            self._write("tool-results", {"tool_call_id": call_id, "request_id": "r", "content": f"{content} {call_id}"})

    def _write(self, topic: str, record: dict[str, Any]) -> None:
        value = json.dumps({"user_id": "u", **record}).encode()
        self.simulation.broker.append(TopicPartition(topic, 0), b"u", value)

    def kill_at(self, step: int) -> None:
        def strike() -> None:
            for process in self.simulation.alive:
                kill(self.simulation, process)

        self.simulation.at_step(step, strike)

    def to_its_end(self) -> Ended:
        """Raises `AssertionError` if the storm's own verdict finds anything."""
        self.simulation.keep_running(60)
        with patch.object(paced, "End", _two_calls):
            self.run(*_KNOWN)
        assert self._written_behind_a_deletion() == []
        audit = [json.loads(one.value or b"") for one in self.records("audit") if one.visible]
        approvals = [(one["outcome"], one.get("by")) for one in audit if one["action"] == "approval"]
        calls = [json.loads(one.value or b"") for one in self.records("tool-calls") if one.visible]
        woken = sum(one.visible and WOKEN_HEADER in dict(one.headers) for one in self.records("requests"))
        turn = self.turns()["r"]
        return Ended(
            turn.answer,
            turn.finish_reason,
            self._results(),
            tuple(sorted(one["tool_call_id"] for one in calls)),
            tuple(sorted(approvals)),
            woken,
        )

    def _results(self) -> tuple[str, ...]:
        entries = self.simulation.broker.log(TopicPartition(f"parley-{Table.CONVERSATIONS.value}-changelog", 0)).entries
        row = json.loads([one.value for one in entries if one.visible and one.value][-1])
        return tuple(step["content"] for step in row["turns"][0]["steps"] if step["role"] == "tool")

    def _written_behind_a_deletion(self) -> list[bytes]:
        """Rows that were there again after they had gone."""
        found = []
        for table in (Table.CALLS, Table.ASLEEP):
            gone: set[bytes] = set()
            for entry in self.simulation.broker.log(TopicPartition(f"parley-{table.value}-changelog", 0)).entries:
                if entry.visible and entry.value is None and table is Table.ASLEEP:
                    gone.add(entry.key or b"")
                elif entry.visible and entry.key in gone:
                    found.append(entry.key or b"")
        return found


def _two_calls(*of: Any, calls: tuple[Any, ...] = (), **named: Any) -> End:
    return End(*of, calls=(*calls, *(replace(one, name="other") for one in calls)), **named)


def storm(seed: int, kills: int = 4) -> list[str]:
    """What is wrong with it."""
    untouched = TwoWaits(seed)
    try:
        expected = untouched.to_its_end()
    except AssertionError as error:
        return [f"seed {seed}, {untouched.kinds}, left alone: {error}"]
    wrong, chance = [], random.Random(f"steps {seed}")
    for _ in range(kills):
        step = chance.randint(untouched.first_step, untouched.last_step)
        course = TwoWaits(seed)
        course.kill_at(step)
        try:
            if (ended := course.to_its_end()) != expected:
                wrong.append(f"seed {seed}, {course.kinds}, killed at {step}: {ended}, expected {expected}")
        except (AssertionError, KeyError) as error:
            wrong.append(f"seed {seed}, {course.kinds}, killed at {step}: {error!r}")
    return wrong


if __name__ == "__main__":
    found = [one for seed in range(int(sys.argv[1])) for one in storm(seed)]
    print(*found, f"{sys.argv[1]} seeds, {4 * int(sys.argv[1])} kills, {len(found)} wrong", sep="\n")
    sys.exit(bool(found))
