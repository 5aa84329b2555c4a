"""Which values are hidden, written down and kept."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Literal

import msgspec
import pytest
from agents.masking import Masking, kept_turn, private_in

from app.features.guard.analyzer import AnalyzerError
from app.features.guard.guard import Guard
from app.features.guard.turns import Asker, BusyError, Patience
from app.policy.file import Policy
from app.policy.guard_rules import GuardRules
from app.wire.error import ErrorCode
from app.wire.event import Plan, RecalledTurn
from app.wire.limits import MAX_PRIVATE_BYTES, MAX_PRIVATE_VALUES
from models.generation import Delta, FinishReason
from models.private.mask import Mask
from models.private.value import PrivateValue
from tables.records import Turn
from tests.unit.agents.guarded import PATTERNS, answer_of, one_round, partition_with_secret
from tests.unit.agents.inflight_requests import answer_with, inflight_of

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


def masking_of(
    analyzer: Any = PATTERNS,
    *,
    pii: Literal["mask", "redact"] = "mask",
    on_failure: Literal["open", "closed"] = "closed",
) -> Masking:
    rules = GuardRules(pii=pii, pii_entities=("EMAIL_ADDRESS",), on_failure=on_failure)
    return Masking(Guard(Policy(guard=rules), lambda _rules: analyzer))


def mails(count: int) -> str:
    return " ".join(f"user{number}@example.com" for number in range(count))


async def test_the_values_of_a_request_are_in_its_plan_and_its_mask() -> None:
    inflight = inflight_of(prompt=f"write to {MAIL.value}")
    await masking_of().look(partition_with_secret(), inflight, ())
    assert inflight.plan.private == inflight.mask.values == (MAIL,)


async def test_values_in_results_of_tools_are_hidden_and_written_before_the_next_round() -> None:
    inflight = inflight_of(prompt=f"write to {MAIL.value}")
    masking, partition = masking_of(), partition_with_secret()
    await masking.look(partition, inflight, ())
    answer, log = answer_of(inflight)
    inflight.made = inflight.rounds = one_round(f"it is {OTHER.value}")
    await masking.look_at_results(partition, inflight, answer)
    assert inflight.mask.values == (MAIL, OTHER)
    assert [[*plan["private"]] for plan in log.plans] == [
        [{"kind": one.kind, "value": one.value} for one in (MAIL, OTHER)]
    ]


@pytest.mark.parametrize("pii", ["mask", "redact"])
async def test_values_that_the_model_writes_by_itself_are_kept_as_private(pii: Literal["mask", "redact"]) -> None:
    inflight = inflight_of()
    masking, partition = masking_of(pii=pii), partition_with_secret()
    await masking.look(partition, inflight, ())
    answer, _log = answer_of(inflight)
    await answer.say(Delta(0, (7,), f"ask {OTHER.value}"))
    await masking.settle(partition, inflight, answer)
    turn = Turn("r1", "why?", answer.text, 1)
    kept = kept_turn(turn, inflight)
    if pii == "redact":
        assert OTHER.value not in kept.answer
        assert OTHER.value not in inflight.kept.hide(answer.text)
    else:
        assert (kept.answer, kept.private) == (answer.text, (OTHER,))
        assert private_in(inflight, [answer.text]) == (OTHER,)


async def test_a_turn_without_a_verdict_names_no_values() -> None:
    inflight = inflight_of()
    masking = masking_of(Scripted(AnalyzerError("away")))
    await masking.settle(partition_with_secret(), inflight, answer_of(inflight)[0])
    assert kept_turn(Turn("r1", "why?", "", 1), inflight).private is None


@pytest.mark.parametrize("on_failure", ["open", "closed"])
async def test_want_of_time_is_no_verdict_and_never_lets_a_request_go_on_unmasked(
    on_failure: Literal["open", "closed"],
) -> None:
    inflight = inflight_of()
    analyzer = Scripted(BusyError("too many texts wait for the guard"))
    await masking_of(analyzer, on_failure=on_failure).look(partition_with_secret(), inflight, ())
    assert inflight.refusal is not None
    assert (inflight.refusal.code, inflight.plan.filtered) == (ErrorCode.OVERLOADED, None)
    assert [(one.user, one.patience) for one in analyzer.askers] == [("ann", Patience.NEW)]


async def test_a_request_that_was_admitted_is_not_refused_for_want_of_time() -> None:
    inflight = inflight_of()
    inflight.logged = Plan(model="small")
    analyzer = Scripted(AnalyzerError("away"))
    await masking_of(analyzer).look(partition_with_secret(), inflight, ())
    assert [one.patience for one in analyzer.askers] == [Patience.BEGUN]


async def test_a_search_ends_with_its_request() -> None:
    inflight = inflight_of()
    looking = asyncio.ensure_future(masking_of(Scripted(None)).look(partition_with_secret(), inflight, ()))
    await asyncio.sleep(0.01)
    assert not looking.done()
    inflight.stop.now(FinishReason.CANCELLED)
    async with asyncio.timeout(5):
        await looking
    assert inflight.plan.filtered is None


@pytest.mark.parametrize("on_failure", ["open", "closed"])
async def test_a_plan_holds_as_many_values_as_a_record_has_room_for(on_failure: Literal["open", "closed"]) -> None:
    masking, partition = masking_of(on_failure=on_failure), partition_with_secret()
    inflight = inflight_of(prompt="hello")
    await masking.look(partition, inflight, ())
    answer, log = answer_of(inflight)
    inflight.made = inflight.rounds = one_round(*[mails(2500) for _ in range(2)], mails(MAX_PRIVATE_VALUES + 1000))
    await masking.look_at_results(partition, inflight, answer)
    assert len(inflight.plan.private or ()) <= MAX_PRIVATE_VALUES
    assert inflight.plan.filtered == ("too_many_values" if on_failure == "closed" else None)
    (plan,) = log.plans
    assert len(msgspec.json.encode(plan["private"])) <= MAX_PRIVATE_BYTES + 2


async def test_related_turns_with_more_values_than_a_plan_holds_are_left_out() -> None:
    inflight = inflight_of()
    inflight.related = (RecalledTurn("r0", mails(MAX_PRIVATE_VALUES + 1), "", 1),)
    await masking_of().look_at_related(inflight)
    assert inflight.related == ()


async def test_values_of_earlier_turns_count_as_well() -> None:
    past = tuple(PrivateValue("EMAIL_ADDRESS", f"u{number}@example.org") for number in range(MAX_PRIVATE_VALUES))
    memory = [Turn("r0", "", "", 1, private=past)]
    inflight = inflight_of(prompt=f"write to {MAIL.value}")
    await masking_of().look(partition_with_secret(), inflight, memory)
    assert inflight.plan.filtered == "too_many_values"


async def test_an_answer_that_has_begun_is_not_read_again() -> None:
    inflight = inflight_of(prompt=f"write to {MAIL.value}")
    inflight.recovered = answer_with("word")
    await masking_of().look(partition_with_secret(), inflight, ())
    assert inflight.plan.private is None


async def test_the_mask_is_made_once_for_the_same_values() -> None:
    inflight = inflight_of(prompt=f"write to {MAIL.value}")
    masking, partition = masking_of(), partition_with_secret()
    await masking.look(partition, inflight, ())
    mask = inflight.mask
    assert isinstance(mask, Mask)
    assert await masking.mask_of(partition, inflight, ()) is mask
