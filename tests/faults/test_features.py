"""The short version of `make faults`, for what a feature or an engine promises beside the answer."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.local.kafka import KafkaCluster
from tests.conftest import NewSettings
from tests.faults import foreign
from tests.faults.arena import arena
from tests.faults.faults import KillInside, KillWorker
from tests.faults.load import SLEEPING_USERS, decided_question, long_question, sleeping_question, tool_question
from tests.faults.moderation_server import moderation_policy
from tests.faults.policies import APPROVALS, sleeping_policy, some_policy
from tests.faults.races import race
from tests.faults.test_faults import inflict, settings_of
from tests.faults.unslept import Unslept


@pytest.mark.timeout(600)
async def test_calls_over_kafka_are_made_once_and_their_results_count_once_however_workers_end(
    kafka: KafkaCluster, new_settings: NewSettings, tmp_path: Path
) -> None:
    settings = await settings_of(new_settings)
    await inflict(
        kafka, settings, tmp_path, KillWorker(), KillInside("kill_after_commit", 10), ask=tool_question, per_s=3.0
    )


@pytest.mark.timeout(600)
async def test_answers_that_sleep_lose_nothing_and_make_the_calls_that_were_approved_however_workers_end(
    kafka: KafkaCluster, new_settings: NewSettings, tmp_path: Path
) -> None:
    settings = (await settings_of(new_settings)).model_copy(update={"paced_tokens_per_s": 20.0})
    async with arena(
        kafka,
        settings,
        tmp_path,
        ask=sleeping_question,
        users=SLEEPING_USERS,
        per_s=4.0,
        policies=sleeping_policy,
        always="two_tools",
        approvals=APPROVALS,
    ) as place:
        for fault in (KillInside("kill_asleep", 4), KillInside("kill_woken", 4)):
            await fault.inflict(place)
            await place.speaking()
    verdict = await place.verdict()
    again = await Unslept(settings, tmp_path / "again", "two_tools").wrong()
    assert verdict.clean, verdict.line()
    assert not place.exits, place.exits
    assert verdict.sleeps >= 20, verdict.line()
    assert again.asked >= 5
    assert not again.changed


@pytest.mark.timeout(600)
async def test_the_first_of_two_decisions_counts_however_close_they_are(
    kafka: KafkaCluster, new_settings: NewSettings, tmp_path: Path
) -> None:
    settings = (await settings_of(new_settings)).model_copy(update={"paced_tokens_per_s": 1000.0})
    raced = await race(settings, tmp_path, calls=60, kills=1)
    assert not raced.wrong
    assert raced.calls == 60


@pytest.mark.timeout(600)
async def test_each_foreign_record_is_answered_once_on_its_topic_however_workers_end(
    kafka: KafkaCluster, new_settings: NewSettings, tmp_path: Path
) -> None:
    settings = (await settings_of(new_settings)).model_copy(update={"paced_tokens_per_s": 50.0})
    line, wrong = await foreign.run(kafka, settings, tmp_path, records=60, kills=2, per_s=5.0, workers=2)
    assert not wrong, f"{line}: {wrong}"


@pytest.mark.timeout(600)
async def test_what_is_decided_about_an_answer_stands_whatever_the_next_owner_would_decide(
    kafka: KafkaCluster, new_settings: NewSettings, tmp_path: Path
) -> None:
    faults = (KillInside("kill_after_plan", 10), KillWorker())
    settings = await settings_of(new_settings)
    await inflict(
        kafka,
        settings,
        tmp_path,
        *faults,
        ask=decided_question,
        users=4,
        per_s=2.0,
        policies=some_policy,
        always="model_fails",
    )


@pytest.mark.timeout(600)
async def test_no_reader_gets_blocked_text_however_workers_end(
    kafka: KafkaCluster, new_settings: NewSettings, tmp_path: Path
) -> None:
    settings = await settings_of(new_settings)
    settings = settings.model_copy(update={"paced_tokens_per_s": 60.0})
    async with moderation_policy() as policy:
        await inflict(
            kafka,
            settings,
            tmp_path,
            KillInside("kill_after_plan", 5),
            KillWorker(),
            ask=long_question,
            users=4,
            per_s=2.0,
            policies=lambda _chance: policy,
            moderated=True,
        )
