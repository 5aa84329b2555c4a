"""What a fork copies and repeats, each moment at which an owner can die meanwhile, and that storms can fail."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from agents import controls
from agents.controls import Controls
from app.answering import kept, pipeline
from app.features import forks
from app.features.forks import BegunElsewhere, Copying
from app.search import query as searching
from app.search.query import TurnSearch
from app.wire.turn import Turn
from models.interface.generation import FinishReason
from tables.erasures import Marks
from tables.records import KeptTurn, Table
from tests.faults.load import TOOLS
from tests.simulation.mutant import Mutant, find_broken_promise
from tests.simulation.process import Process
from tests.simulation.sleeping import fork_storm, version_storm
from tests.simulation.test_busy import CALLS, TALKS, Busy

ASKED = {"prompt": "What is it?", "max_tokens": 9}


class Forked(Busy):
    """A worker of whose calls nobody answers any, and a conversation `c1`."""

    def ask_first(self, at: float, request_id: str, **fields: Any) -> None:
        self.ask(at, request_id, conversation_id="c1", **{**ASKED, **fields})

    def fork(self, at: float, request_id: str, of: str, *, source: str = "c1", to: str = "c2", **fields: Any) -> None:
        """`tokens`, if given, is how many of the answer's, which must be there by then."""
        index = fields.pop("index", None)
        begins: dict[str, Any] = {"conversation_id": source, "request_id": of}
        if index is not None:
            fields = {"prompt": None, **fields}

        def send() -> None:
            if index is not None:
                begins.update(index=index, tokens=self.tokens(of)[:index])
            asked = {"prompt": f"{request_id}?", "max_tokens": 9, "conversation_id": to, "from": begins, **fields}
            self.simulation.send("requests", "u", {"request_id": request_id, "user_id": "u", **asked})

        self.after(at, send)
        self.simulation.keep_running(at + 5.0)

    def tokens(self, request_id: str) -> list[int]:
        return [token for event in self.events(request_id) for token in event.tokens or ()]

    def text(self, request_id: str) -> str:
        return "".join(event.text or "" for event in self.events(request_id))

    def rows(self) -> dict[str, list[dict[str, Any]]]:
        rows = self.committed(Table.CONVERSATIONS).items()
        return {json.loads(key)[1]: json.loads(value)["turns"] for key, value in rows if value}

    def names(self, conversation: str) -> list[str]:
        return [turn["request_id"] for turn in self.rows()[conversation]]

    def error(self, request_id: str) -> str:
        end = self.events(request_id)[-1]
        return "" if end.error is None else f"{end.error.code}: {end.error.message}"


def test_a_fork_begins_as_a_copy_up_to_a_request(monkeypatch: pytest.MonkeyPatch) -> None:
    course = Forked(monkeypatch)
    for number in range(3):
        course.ask_first(1.0 + number, f"r{number}")
    course.fork(6.0, "f1", "r1")
    course.ask(8.0, "f2", conversation_id="c2")
    course.fork(10.0, "g1", "f1", source="c2", to="c3")
    course.run()
    assert course.names("c1") == ["r0", "r1", "r2"]
    assert course.names("c2") == ["r0", "r1", "f1", "f2"]
    assert course.names("c3") == ["r0", "r1", "f1", "g1"]
    assert course.reason("g1") == FinishReason.LENGTH


@pytest.mark.parametrize("index", [0, 1, 5, 9])
def test_an_answer_begins_with_the_tokens_of_another(index: int, monkeypatch: pytest.MonkeyPatch) -> None:
    course = Forked(monkeypatch)
    course.ask_first(1.0, "r0")
    course.ask_first(2.0, "r1")
    course.fork(6.0, "f1", "r1", index=index)
    course.run()
    assert course.tokens("f1") == course.tokens("r1")  # the prompt is the same, and so is what follows
    assert course.text("f1") == course.text("r1")
    copied = course.rows()["c2"][-1]
    assert (copied["request_id"], copied["prompt"]) == ("f1", ASKED["prompt"])
    assert not copied.get("open", False)
    assert course.names("c2") == ["r0", "f1"]
    usage = course.events("f1")[-1].usage
    assert usage is not None
    assert usage.completion_tokens == 9


def test_a_prompt_replaces_the_question(monkeypatch: pytest.MonkeyPatch) -> None:
    course = Forked(monkeypatch)
    course.ask_first(1.0, "r0")
    course.ask_first(2.0, "r1")
    course.fork(6.0, "f1", "r1", index=2, prompt="Another?")
    course.run("changed")  # the engine says other words to another prompt, and the verdict knows them alone
    assert course.tokens("f1")[:2] == course.tokens("r1")[:2]
    assert course.tokens("f1")[2:] != course.tokens("r1")[2:]
    assert [turn["prompt"] for turn in course.rows()["c2"]] == [ASKED["prompt"], "Another?"]


def test_what_the_row_has_not_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    course = Forked(monkeypatch)
    course.ask_first(1.0, "r0")
    course.fork(3.0, "f1", "r7")
    course.fork(3.0, "f2", "r0", source="elsewhere")
    course.fork(3.0, "f3", "r0", to="c3")
    course.fork(5.0, "f4", "r0", to="c3")
    course.run()
    assert course.error("f1") == "invalid_request: from: conversation c1 has no turn of r7, or not any more"
    assert course.error("f2") == "invalid_request: from: conversation elsewhere has no turn of r0, or not any more"
    assert course.error("f4").endswith("c3 has turns already, and a fork begins a conversation")
    assert course.names("c3") == ["r0", "f3"]
    assert "c2" not in course.rows()


def test_a_fork_waits_for_the_answer_that_it_names_and_for_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    course = Forked(monkeypatch)
    course.ask_first(1.0, "r0", max_tokens=40)
    course.ask_first(1.1, "r1", **TALKS)
    course.fork(1.5, "f1", "r0")
    course.ask(8.0, "r9", "interrupt", conversation_id="c1")
    course.run()
    assert course.names("c2") == ["r0", "f1"]
    assert course.ended_s("r0") < course.ended_s("f1") < 7.0


@pytest.mark.parametrize("index", [None, 0])
def test_turns_with_calls_are_copied_with_their_results(index: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    course = Forked(monkeypatch)
    called = {"tools": TOOLS, "tool_mode": "kafka", "tool_timeout_ms": 1000}
    course.ask_first(1.0, "r0", **called)
    course.ask_first(4.0, "r1", **called)
    course.fork(30.0, "f1", "r1", index=index, **called)
    course.fork(30.0, "f2", "r1", index=9, to="c3", **called)
    course.run()
    first, second = course.rows()["c1"]
    copied = course.rows()["c2"]
    assert copied[0] == first
    if index is None:
        assert copied[1] == second
    else:
        assert (copied[1]["request_id"], copied[1]["prompt"]) == ("f1", second["prompt"])
        assert len(copied[1]["steps"]) == len(second["steps"])
    assert "has called tools" in course.error("f2")


def test_a_turn_that_waits_is_copied_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer in the source ends later, and changes nothing in the copy."""
    course = Forked(monkeypatch)
    course.ask_first(1.0, "r0")
    course.ask(2.0, "r1", conversation_id="c1", **{**CALLS, "tool_timeout_ms": 9000})
    course.ask_first(5.0, "r2")
    course.fork(7.0, "f1", "r2")
    course.simulation.keep_running(30)
    course.run()
    assert course.names("c2") == ["r0", "r1", "r2", "f1"]
    waiting = course.rows()["c2"][1]
    assert [step["role"] for step in waiting["steps"]] == ["assistant", "tool"]
    assert not waiting.get("open", False)
    assert not course.rows()["c1"][1].get("open", False)


@pytest.mark.parametrize("after_s", [-0.5, 0.0001, 0.002, 0.01, 0.05, 0.3, 2.0])
def test_an_erasure_of_a_conversation_reaches_its_copies(after_s: float, monkeypatch: pytest.MonkeyPatch) -> None:
    course = Forked(monkeypatch)
    course.ask_first(1.0, "r0")
    course.fork(4.0, "f1", "r0", max_tokens=100)
    course.fork(6.0, "g1", "f1", source="c2", to="c3")
    course.ask(6.0, "other", conversation_id="c9")
    erase = {"type": "erase_conversation", "user_id": "u", "conversation_id": "c1"}
    course.after((6.2 if after_s == 2.0 else 4.0) + after_s, lambda: course.simulation.send("controls", "u", erase))
    course.simulation.keep_running(30)
    course.run()
    assert [*course.rows()] == ["c9"]


@pytest.mark.parametrize("later_s", [0.001, 0.2, 1.0])
def test_a_copy_that_an_owner_makes_before_it_reads_the_erasure_is_erased(
    later_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fork comes after the erasure, while nobody owns the partition. The next owner reads the erasure last."""
    monkeypatch.setattr(Controls, "receive", _late)
    course = Forked(monkeypatch)
    course.ask_first(1.0, "r0")
    course.kill_at(lambda course, _: "c1" in course.rows(), back_s=4.0)
    erase = {"type": "erase_conversation", "user_id": "u", "conversation_id": "c1"}
    course.after(3.0, lambda: course.simulation.send("controls", "u", erase))
    course.fork(3.0 + later_s, "f1", "r0")
    course.fork(9.0, "g1", "f1", source="c2", to="c3")
    course.simulation.keep_running(40)
    course.run()
    assert course.killed == 1
    assert [*course.rows()] == []


def _late(controls: Controls, *arguments: Any) -> None:
    asyncio.get_running_loop().call_later(2.0, _RECEIVE, controls, *arguments)


def _is_read(_: Any, process: Process) -> bool:
    return ("u", "f1") in process.partitions[0].ownership.inflight_requests


def _is_copied(course: Any, _process: Process) -> bool:
    return "c2" in course.rows()


def _has_begun(course: Any, _process: Process) -> bool:
    return bool(course.tokens("f1"))


def _goes_on(course: Any, _process: Process) -> bool:
    return len(course.tokens("f1")) > 4


def _has_its_end(course: Any, _process: Process) -> bool:
    return any(event.is_end for event in course.events("f1"))


MOMENTS: dict[str, Callable[[Any, Process], bool]] = {
    "it is read": _is_read,
    "it is copied": _is_copied,
    "its beginning is written": _has_begun,
    "it goes on": _goes_on,
    "it has its end": _has_its_end,
}


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("index", [None, 0, 3])
def test_an_owner_dies(moment: str, index: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    course = Forked(monkeypatch)
    course.ask_first(1.0, "r0")
    course.ask_first(2.0, "r1")
    course.fork(4.0, "f1", "r1", index=index)
    for number in range(12):  # they push what is copied out of its row
        course.ask_first(4.01, f"n{number}", max_tokens=1)
    course.kill_at(MOMENTS[moment])
    course.simulation.keep_running(60)
    course.run()
    assert course.killed == 1
    if index is not None:
        assert course.tokens("f1") == course.tokens("r1")
    assert course.reason("f1") == FinishReason.LENGTH
    assert course.names("c2") == (["r0", "r1", "f1"] if index is None else ["r0", "f1"])


def _no_results(turn: Any, **changes: Any) -> Any:
    steps = tuple(step for step in turn.steps if step.role != "tool")
    return _REPLACE(turn, **{"steps": steps, **changes} if isinstance(turn, KeptTurn) else changes)


def _one_off(stage: BegunElsewhere, run: Any, fork: Any, ids: tuple[int, ...]) -> None:
    _BEGIN(stage, run, fork, (*ids[1:], *ids[:1]))


def _no_copies(*_: Any) -> Any:
    return iter(())


def _not_read(*_: Any) -> bool:
    return False


async def _waits_for_nothing(_stage: Copying) -> None:
    return None


def _of_its_own(*arguments: Any, **more: Any) -> Any:
    job = _JOB(*arguments, **more)
    return replace(job, prompt=job.prompt[1:]) if arguments[0].request.fork is not None else job


def _itself(turn: Turn) -> tuple[str, ...]:
    return (turn.request_id,) if turn.replaces and turn.answer else ()


def _whatever_became_of_it(turn: Turn) -> tuple[str, ...]:
    return turn.replaces or ()


def _forgotten_by_successors(run: Any, *arguments: Any) -> Turn:
    turn = _TURN(run, *arguments)
    return _REPLACE(turn, replaces=None) if run.accepted.former.has_begun else turn


async def _once_alone(search: TurnSearch, query: Any, hits: Any) -> Any:
    rows = await search._vectors.replacements(query.user_id, sorted({hit.request_id for hit in hits}))
    named = Counter(one for row in rows for one in row["replaces"])
    return {one: version for one, version in (await _VERSIONS(search, query, hits)).items() if named[one] % 2}


_VERSIONS, _TURN = TurnSearch._versions, kept._turn
_RECEIVE = Controls.receive
_REPLACE, _BEGIN, _JOB = msgspec.structs.replace, BegunElsewhere.__init__, pipeline.job_of

MUTANTS: dict[str, Mutant] = {
    "the first ids are one off": Mutant(BegunElsewhere, "__init__", _one_off, fork_storm, hint=10),
    "a copy lacks the results of tools": Mutant(forks.msgspec.structs, "replace", _no_results, fork_storm),
    "an erasure forgets the copies": Mutant(controls, "copies_of", _no_copies, fork_storm, hint=33),
    "a copy is made beside an erasure": Mutant(Marks, "cover", _not_read, fork_storm, hint=3),
    "a fork does not wait for what it names": Mutant(Copying, "_source_ended", _waits_for_nothing, fork_storm, hint=2),
    "what follows reads another prompt": Mutant(pipeline, "job_of", _of_its_own, fork_storm),
    "a version is hidden in the place of its source": Mutant(Turn, "hides", property(_itself), version_storm, hint=1),
    "a version without an answer hides": Mutant(Turn, "hides", property(_whatever_became_of_it), version_storm, 2),
    "a successor forgets what is replaced": Mutant(kept, "_turn", _forgotten_by_successors, version_storm, hint=2),
    "what is named twice is found": Mutant(TurnSearch, "_versions", _once_alone, version_storm, hint=1),
    "a search stops where all is replaced": Mutant(searching, "_MOST", 0, version_storm, hint=2),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_mutant_is_found(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    find_broken_promise(mutant, MUTANTS[mutant], monkeypatch)
