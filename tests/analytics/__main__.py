"""`python -m tests.analytics --turns 5000 --kills 20`: rows in PostgreSQL equal turns while Kafka Connect is killed."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path

import click

from app.local.kafka import KafkaCluster
from app.settings import Settings
from tests.analytics.storm import Analytics, Outcome, as_lines, storm
from tests.faults.worker_process import WorkerProcess
from tests.integration.worker.client import Client
from tests.integration.worker.conftest import module_settings


@click.command()
@click.option("--turns", default=5000, show_default=True)
@click.option("--kills", default=20, show_default=True)
@click.option("--seconds", default=200.0, show_default=True, help="The requests are spread over so many seconds.")
def main(turns: int, kills: int, seconds: float) -> None:
    """Exit code 1 if a row is missing, foreign or differs."""
    with tempfile.TemporaryDirectory(prefix="analytics-") as name:
        outcome = run(Path(name), turns, kills, seconds)
    click.echo(as_lines(outcome))
    sys.exit(0 if outcome.is_right else 1)


def run(folder: Path, turns: int, kills: int, seconds: float) -> Outcome:
    kafka = KafkaCluster(folder / "kafka")
    kafka.start()
    try:
        settings = module_settings(kafka, folder, usage_window_s=10)
        worker = WorkerProcess(settings, folder / "worker.log").start()
        analytics = Analytics(kafka, folder, settings.topic_prefix)
        try:
            worker.wait_owning(settings.partitions)
            analytics.start()
            return asyncio.run(_storm(analytics, settings, turns, kills, seconds))
        finally:
            analytics.kill()
            worker.kill()
    finally:
        kafka.kill()


async def _storm(analytics: Analytics, settings: Settings, turns: int, kills: int, seconds: float) -> Outcome:
    async with Client(settings) as client:
        return await storm(analytics, client, turns=turns, kills=kills, over_s=seconds)


if __name__ == "__main__":
    main()
