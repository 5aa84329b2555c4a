"""The short version of `make faults`: real processes on a real Kafka, the commonest faults once or twice."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from app.local.kafka import KafkaCluster
from app.settings import Settings
from tests.conftest import NewSettings
from tests.faults import engine_plugs, foreign, plugs
from tests.faults.arena import arena
from tests.faults.faults import BrokerKilled, Fault, KillInside, KillWorker, RebalanceStorm, Zombie
from tests.faults.load import (
    decided_question,
    long_question,
    paced_question,
    shop_question,
    sleeping_question,
    tool_question,
)
from tests.faults.moderation_server import moderation_policy
from tests.faults.moderation_verdict import wrong_answers
from tests.faults.poison import Poison
from tests.faults.policies import APPROVALS, sleeping_policy, some_policy
from tests.faults.races import race
from tests.faults.unslept import Unslept


async def inflict(
    cluster: KafkaCluster, settings: Settings, folder: Path, *faults: Fault, moderated: bool = False, **how: Any
) -> None:
    how.setdefault("ask", paced_question if settings.engine == "paced" else shop_question)
    async with arena(cluster, settings, folder, **how) as place:
        for number, fault in enumerate(faults):
            if number:
                await place.answered()
            await fault.inflict(place)
            await place.speaking()
    verdict = await place.verdict()
    if moderated:
        verdict.wrong_plans += await wrong_answers(settings)
    assert verdict.clean, verdict.line()
    assert not place.exits, place.exits
    assert verdict.requests >= place.load.sent


def test_every_plug_finds_what_it_replaces() -> None:
    """The long run alone uses some of them."""
    names = [*plugs.PLUGS, *engine_plugs.PLUGS]
    code = "import sys; from tests.faults.plugs import plug_of; [plug_of(name)(5) for name in sys.argv[1:]]"
    subprocess.run([sys.executable, "-c", code, *names], check=True, timeout=120, cwd=Path(__file__).parents[2])


async def settings_of(new_settings: NewSettings, **values: object) -> Settings:
    return await new_settings(engine="paced", embedder="none", paced_tokens_per_s=10.0, partitions=2, **values)


@pytest.mark.timeout(600)
async def test_killed_workers_lose_nothing_and_say_nothing_twice(
    kafka: KafkaCluster, new_settings: NewSettings, tmp_path: Path
) -> None:
    faults = (KillWorker(), KillInside("kill_after_commit", 10), Poison(), KillInside("kill_in_transaction", 10))
    await inflict(kafka, await settings_of(new_settings), tmp_path, *faults)


@pytest.mark.timeout(600)
async def test_a_zombie_and_workers_that_come_and_go_do_no_harm(
    kafka: KafkaCluster, new_settings: NewSettings, tmp_path: Path
) -> None:
    settings = await settings_of(new_settings, session_timeout_s=6.0)
    await inflict(kafka, settings, tmp_path, Zombie(), RebalanceStorm(joining=1))


@pytest.mark.timeout(600)
async def test_conversations_expire_by_the_brokers_clock_however_wrong_those_of_workers_and_producers_are(
    kafka: KafkaCluster, new_settings: NewSettings, tmp_path: Path
) -> None:
    settings = await settings_of(new_settings, conversation_ttl_s=5.0, sweep_interval_s=1.0)
    await inflict(kafka, settings, tmp_path, KillWorker(), RebalanceStorm(joining=1), users=36, skew_s=3500.0)


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
        users=8,
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


@pytest.mark.timeout(600)
async def test_a_broker_that_is_killed_and_comes_back_ends_no_worker(
    start_kafka, new_settings: NewSettings, tmp_path: Path
) -> None:
    cluster = start_kafka()
    settings = await settings_of(new_settings, broker=cluster.broker_setting)
    await inflict(cluster, settings, tmp_path / "workers", BrokerKilled(3.0))


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_an_engine_that_dies_or_is_killed_says_no_token_that_it_would_not_have_said(
    kafka: KafkaCluster, new_settings: NewSettings, tmp_path: Path
) -> None:
    settings = await new_settings(engine="torch", embedder="none", threads=1, partitions=2)
    await inflict(kafka, settings, tmp_path, KillInside("engine_dies", 60, 1), KillInside("kill_after_token", 60))
