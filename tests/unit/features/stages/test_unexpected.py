"""Whatever a stage raises ends its request: one error event, one dead letter, and its rows are gone."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

import pytest

from app.answering.dialogue import Dialogue
from app.answering.kept import Kept
from app.answering.run import Run
from app.answering.stage import Decide, Ending, Feature, Generate, Round, Stage
from app.delivery.accepted import Former
from app.delivery.commits.commit import LostError
from app.delivery.inflight import Outcome
from app.features.tool_rounds import ToolsOverKafka
from app.wire.event import EventType, Plan
from models.interface.generation import Delta, Job, StreamEvent
from tables import records
from tables.records import KeptTurn, Table
from tests.unit.answering.bench import SETTINGS, WEATHER, BenchPartition, answered
from tests.unit.features.stages.tool_programs import tool_results

SECRET = "what the operator must not log"
PHASES = ("stage", "decide", "read", "round", "see", "generate", "token", "ended", "leave")


class Broken(Feature):
    """A feature whose stage raises at one point."""

    def __init__(self, phase: str, error: Exception | None = None) -> None:
        self.phase, self.error = phase, error or KeyError(SECRET)

    def stage(self, run: Run) -> Stage:
        self.at("stage")
        return Breaking(run, self)

    def at(self, phase: str) -> None:
        if phase == self.phase:
            raise self.error


class Breaking(Stage):
    def __init__(self, run: Run, broken: Broken) -> None:
        super().__init__(run)
        self._at = broken.at

    def is_decided(self, former: Former) -> bool:
        del former
        return False

    async def decide(self, plan: Plan, then: Decide) -> Plan:
        self._at("decide")
        return await then(plan)

    def read(self, plan: Plan, memory: Sequence[KeptTurn]) -> Plan:
        del memory
        self._at("read")
        return plan

    async def round(self, then: Round) -> Ending:
        self._at("round")
        return await then()

    async def see(self, dialogue: Dialogue) -> Dialogue:
        self._at("see")
        return dialogue

    async def generate(self, job: Job, then: Generate) -> AsyncGenerator[StreamEvent, None]:
        self._at("generate")
        written = 0
        async with aclosing(then(job)) as events:
            async for event in events:
                if isinstance(event, Delta) and written == 2:
                    self._at("token")
                written += 1
                yield event

    async def ended(self) -> None:
        self._at("ended")

    def leave(self, kept: Kept) -> Kept:
        self._at("leave")
        return kept

    def committed(self, outcome: Outcome) -> None:
        del outcome
        self._at("committed")


@pytest.mark.parametrize("phase", PHASES)
async def test_what_a_stage_raises_is_one_error_and_one_dead_letter(
    phase: str, caplog: pytest.LogCaptureFixture
) -> None:
    told = await answered(Broken(phase))
    ends = [event for event in told.events if event.is_end]
    assert len(ends) == 1
    if phase in {"ended", "leave"}:  # readers have the end already
        assert told.end.type is EventType.DONE
    else:
        assert told.code == "engine_error"
        assert told.end.index == (2 if phase == "token" else 0)
    assert told.letters == ["engine_error"]
    assert told.turn is None
    assert told.row is None
    assert told.partition.ownership.store.get(Table.ENDED, records.key("ann", "r1")) is not None
    assert [record.outcome for record in told.commit.audit] == [told.code or told.end.finish_reason]
    assert told.outcome.end is told.end or told.outcome.end.type is told.end.type  # it counts in the metrics
    (line,) = [one for one in caplog.records if "its worker goes on" in one.getMessage()]
    assert "KeyError" in line.getMessage()
    assert SECRET not in caplog.text + str(told.end)


@pytest.mark.parametrize("phase", ["round", "see", "generate", "ended", "leave"])
async def test_the_calls_of_a_request_that_fails_are_gone(phase: str) -> None:
    tools, broken, partition = ToolsOverKafka(SETTINGS), Broken("none"), BenchPartition()
    tool_results(partition, tools)
    on_commit = partition.on_commit

    def breaking(commit: object) -> None:
        on_commit(commit)  # type: ignore[arg-type]
        broken.phase = phase

    partition.on_commit = breaking
    told = await answered(tools, broken, partition=partition, tools=[WEATHER], tool_mode="kafka")
    assert len(told.outputs("tool-calls")) >= 1
    assert told.letters == ["engine_error"]
    assert not told.open_calls


async def test_what_is_raised_behind_the_commit_costs_the_request_nothing(caplog: pytest.LogCaptureFixture) -> None:
    told = await answered(Broken("committed"))
    assert told.turn is not None
    assert told.letters == []
    assert "is committed, but not reported whole: KeyError" in caplog.text


@pytest.mark.parametrize("phase", PHASES)
async def test_the_end_of_the_ownership_is_no_failure_of_the_request(phase: str) -> None:
    partition = BenchPartition()
    with pytest.raises(LostError):
        await answered(Broken(phase, LostError("another worker has it")), partition=partition)
    assert not any(event.is_end for event in partition.ownership.token_log.events) or phase in {"ended", "leave"}
    assert partition.commits == []


async def test_an_answer_with_a_record_that_kafka_refuses_ends_before_any_model_reads_it() -> None:
    partition = BenchPartition()
    partition.context.too_large.add(("ann", "r1"))
    told = await answered(partition=partition)
    assert told.code == "engine_error"
    assert told.end.error is not None
    assert told.end.error.message == "Kafka refuses a record of this answer for its size"
    assert told.letters == ["engine_error"]
    assert told.outcome.end is told.end or told.outcome.end.type is EventType.ERROR
