"""Which values are hidden, written down and kept."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Literal, cast

import msgspec
import pytest

from app.answering.dialogue import Dialogue
from app.answering.kept import Kept
from app.answering.run import Over, RequestRefused, Run
from app.answering.stage import Decide, Ending, Stage
from app.delivery.accepted import Former
from app.delivery.inflight import InFlight
from app.features.guard.analyzer import AnalyzerError
from app.features.guard.fair_order import Asker, BusyError, Patience
from app.features.guard.guard import Guard
from app.features.guard.masking import Masking
from app.policy.file import Policy
from app.policy.guard_rules import GuardRules
from app.private.mask import Mask
from app.private.value import PrivateValue
from app.wire.error import ErrorCode
from app.wire.event import Plan, RecalledTurn
from app.wire.record_size import MAX_PRIVATE_BYTES, MAX_PRIVATE_VALUES
from models.interface.generation import Delta, End, FinishReason, Usage
from tables.records import Conversation, KeptTurn, Table
from tables.tool_calls import ToolRounds
from tests.integration.search.history import turn as wire_turn
from tests.unit.answering.runs import run_and_stage_of, unchanged
from tests.unit.delivery.fake_partition import FakeLog
from tests.unit.delivery.inflight_requests import ASKED_AT, answer_with, inflight_of
from tests.unit.features.guard.guarded import PATTERNS, one_round, partition_with_secret

MAIL = PrivateValue("EMAIL_ADDRESS", "ann@example.com")
OTHER = PrivateValue("EMAIL_ADDRESS", "bob@example.org")


class Scripted:
    """Raises an error, or hangs; notes who asks."""

    def __init__(self, error: Exception | None) -> None:
        self.error = error
        self.askers: list[Asker] = []

    async def find(self, _texts: Sequence[str], asker: Asker) -> tuple[PrivateValue, ...]:
        self.askers.append(asker)
        if self.error is not None:
            raise self.error
        await asyncio.sleep(3600)
        return ()

    def forget(self, user: str) -> None:
        raise AssertionError(user)


def masked(
    inflight: InFlight | None = None,
    analyzer: Any = PATTERNS,
    *,
    pii: Literal["mask", "redact"] = "mask",
    on_failure: Literal["open", "closed"] = "closed",
    memory: Sequence[KeptTurn] = (),
) -> tuple[Run, Stage]:
    """The run of a request, and the stage in it."""
    rules = GuardRules(pii=pii, pii_entities=("EMAIL_ADDRESS",), on_failure=on_failure, timeout_s=600.0)
    partition = partition_with_secret()
    if memory:
        partition.put(Table.CONVERSATIONS, Conversation(ASKED_AT, tuple(memory)), "ann", "default")
    masking = Masking(Guard(Policy(guard=rules), lambda _rules: analyzer))
    return run_and_stage_of(masking, inflight=inflight, partition=partition)


async def decide(run: Run, stage: Stage, then: Decide = unchanged) -> Plan:
    """Decide, and put the plan in force."""
    plan = await stage.decide(run.answer.plan, then)
    await run.answer.decide(plan)
    return plan


async def mask_of(run: Run) -> tuple[PrivateValue, ...]:
    return (await run.see(Dialogue(run.accepted.request))).mask.values


async def over() -> Ending:
    """A round of which nothing is asked."""
    return End(0, FinishReason.STOP, Usage(0, 0))


async def after_round(run: Run, stage: Stage, rounds: ToolRounds) -> list[Plan]:
    """The plans that are written behind the results of a round of calls, before a model reads them."""
    log = cast(FakeLog, run.partition.ownership.token_log)
    log.events.clear()
    run.answer.continue_after(rounds)
    with suppress(Over):
        await stage.round(over)
    return [msgspec.convert(plan, Plan) for plan in log.plans]


def mails(count: int) -> str:
    return " ".join(f"user{number}@example.com" for number in range(count))


async def test_the_values_of_a_request_are_in_its_plan_and_its_mask() -> None:
    run, stage = masked(inflight_of(prompt=f"write to {MAIL.value}"))
    plan = await decide(run, stage)
    assert plan.private == await mask_of(run) == (MAIL,)


async def test_values_in_results_of_tools_are_hidden_and_written_before_the_next_round() -> None:
    run, stage = masked(inflight_of(prompt=f"write to {MAIL.value}"))
    await decide(run, stage)
    (plan,) = await after_round(run, stage, one_round(f"it is {OTHER.value}"))
    assert plan.private == await mask_of(run) == (MAIL, OTHER)


@pytest.mark.parametrize("pii", ["mask", "redact"])
async def test_values_that_the_model_writes_by_itself_are_kept_as_private(pii: Literal["mask", "redact"]) -> None:
    run, stage = masked(pii=pii)
    await decide(run, stage)
    await run.answer.write(Delta(0, (7,), f"ask {OTHER.value}"))
    await stage.ended()
    kept = stage.leave(Kept(wire_turn("ann", "r1", answer=run.answer.text), KeptTurn("r1", "why?", run.answer.text, 1)))
    assert kept.turn is not None
    assert kept.row is not None
    if pii == "redact":
        assert OTHER.value not in kept.turn.answer + kept.row.answer
    else:
        assert kept.turn.answer == kept.row.answer == run.answer.text
        assert kept.turn.private == kept.row.private == (OTHER,)


async def test_a_turn_without_a_verdict_names_no_values() -> None:
    _, stage = masked(analyzer=Scripted(AnalyzerError("away")))
    await stage.ended()
    kept = stage.leave(Kept(row=KeptTurn("r1", "why?", "", 1)))
    assert kept.row is not None
    assert kept.row.private is None


@pytest.mark.parametrize("on_failure", ["open", "closed"])
async def test_want_of_time_is_no_verdict_and_never_lets_a_request_go_on_unmasked(
    on_failure: Literal["open", "closed"],
) -> None:
    analyzer = Scripted(BusyError("too many texts wait for the guard"))
    run, stage = masked(analyzer=analyzer, on_failure=on_failure)
    with pytest.raises(RequestRefused) as refused:
        await decide(run, stage)
    assert (refused.value.code, run.answer.plan.filtered) == (ErrorCode.OVERLOADED, None)
    assert [(one.user, one.patience) for one in analyzer.askers] == [("ann", Patience.NEW)]


async def test_a_request_that_was_admitted_is_not_refused_for_want_of_time() -> None:
    analyzer = Scripted(AnalyzerError("away"))
    run, stage = masked(inflight_of(Former(plan=Plan(model="small"))), analyzer)
    await decide(run, stage)
    assert [one.patience for one in analyzer.askers] == [Patience.BEGUN]


async def test_a_search_ends_with_its_request() -> None:
    run, stage = masked(analyzer=Scripted(None))
    deciding = asyncio.ensure_future(decide(run, stage))
    await asyncio.sleep(0.01)
    assert not deciding.done()
    run.inflight.stop.now(FinishReason.CANCELLED)
    with pytest.raises(Over) as over_now:
        async with asyncio.timeout(60):
            await deciding
    assert over_now.value.end.reason is FinishReason.CANCELLED
    assert run.answer.plan.filtered is None


@pytest.mark.parametrize("on_failure", ["open", "closed"])
async def test_a_plan_holds_as_many_values_as_a_record_has_room_for(on_failure: Literal["open", "closed"]) -> None:
    run, stage = masked(on_failure=on_failure)
    await decide(run, stage)
    results = [mails(2500), mails(2500), mails(MAX_PRIVATE_VALUES + 1000)]
    (plan,) = await after_round(run, stage, one_round(*results))
    assert 0 < len(plan.private or ()) <= MAX_PRIVATE_VALUES
    assert plan.filtered == ("too_many_values" if on_failure == "closed" else None)
    assert len(msgspec.json.encode(plan.private)) <= MAX_PRIVATE_BYTES + 2


async def test_related_turns_with_more_values_than_a_plan_holds_are_left_out() -> None:
    run, stage = masked()

    async def recall(plan: Plan) -> Plan:
        turn = RecalledTurn("r0", mails(MAX_PRIVATE_VALUES + 1), "", 1)
        return msgspec.structs.replace(plan, recalled=(turn,))

    assert (await stage.decide(run.answer.plan, recall)).recalled == ()


async def test_values_of_earlier_turns_count_as_well() -> None:
    past = tuple(PrivateValue("EMAIL_ADDRESS", f"u{number}@example.org") for number in range(MAX_PRIVATE_VALUES))
    run, stage = masked(inflight_of(prompt=f"write to {MAIL.value}"), memory=[KeptTurn("r0", "", "", 1, private=past)])
    assert (await decide(run, stage)).filtered == "too_many_values"


def test_an_answer_that_has_begun_is_not_read_again() -> None:
    former = Former(answer_with("word"))
    _, stage = masked(inflight_of(former, prompt=f"write to {MAIL.value}"))
    assert stage.is_decided(former)


async def test_the_mask_is_made_once_for_the_same_values() -> None:
    run, stage = masked(inflight_of(prompt=f"write to {MAIL.value}"))
    await decide(run, stage)
    first, second = [(await run.see(Dialogue(run.accepted.request))).mask for _ in range(2)]
    assert first is second
    assert isinstance(first, Mask)
