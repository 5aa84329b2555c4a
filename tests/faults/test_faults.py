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
from tests.faults import engine_plugs, plugs
from tests.faults.arena import arena
from tests.faults.faults import BrokerKilled, Fault, KillInside, KillWorker, RebalanceStorm, Zombie
from tests.faults.load import paced_question, shop_question
from tests.faults.moderation_verdict import wrong_answers
from tests.faults.poison import Poison


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


async def settings_of(new_settings: NewSettings, **values: object) -> Settings:
    return await new_settings(engine="paced", embedder="none", paced_tokens_per_s=10.0, partitions=2, **values)


def test_every_plug_finds_what_it_replaces() -> None:
    """The long run alone uses some of them."""
    names = [*plugs.PLUGS, *engine_plugs.PLUGS]
    code = "import sys; from tests.faults.plugs import plug_of; [plug_of(name)(5) for name in sys.argv[1:]]"
    subprocess.run([sys.executable, "-c", code, *names], check=True, timeout=120, cwd=Path(__file__).parents[2])


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
