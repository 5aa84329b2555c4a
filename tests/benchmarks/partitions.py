"""What many partitions cost one worker: to take them over, and to own them without any request.

    python -m tests.benchmarks.partitions [--partitions 8 64 256] [--rounds 2]

The first round begins with an empty data directory, the others with the one that the round before has left.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from pathlib import Path

import psutil

from app.kafka.topics import create_topics
from app.local.kafka import KafkaCluster
from app.settings import Settings
from tests.faults.worker_process import WorkerProcess

ASSIGNED = b"Executing _on_partitions_assigned"
IDLE_S = 10.0
_SETTLE_S = 5.0


def take_over(settings: Settings, log: Path) -> str:
    """Start a worker, wait until it owns every partition, and watch it do nothing."""
    with WorkerProcess(settings, log) as worker:
        began = time.monotonic()
        while ASSIGNED not in log.read_bytes():
            time.sleep(0.02)
        assigned = time.monotonic()
        worker.wait_owning(settings.partitions)
        owned = time.monotonic()
        time.sleep(_SETTLE_S)
        process = psutil.Process(worker.pid)
        before = process.cpu_times()
        time.sleep(IDLE_S)
        after = process.cpu_times()
        idle = (after.user + after.system - before.user - before.system) / IDLE_S
        memory = process.memory_info().rss / 1e6
        files = process.num_fds()
        worker.stop()
    return f"{owned - began:>10.1f}{owned - assigned:>12.1f}{idle:>9.1%}{files:>8}{memory:>9.0f}"


def main(counts: list[int], rounds: int, folder: Path) -> None:
    kafka = KafkaCluster(folder / "kafka")
    kafka.start()
    print(
        f"{'partitions':>10}{'round':>6}{'start s':>10}{'take-over s':>12}{'idle':>9}{'files':>8}{'MB':>9}", flush=True
    )
    try:
        for count in counts:
            settings = Settings(
                _env_file=None,
                broker=kafka.broker_setting,
                topic_prefix=f"p{count}-",
                app_id=f"p{count}",
                data_dir=folder / f"p{count}",
                partitions=count,
                engine="paced",
                embedder="none",
            )
            asyncio.run(create_topics(settings))
            for number in range(1, rounds + 1):
                print(f"{count:>10}{number:>6}{take_over(settings, folder / f'{count}-{number}.log')}", flush=True)
    finally:
        kafka.kill()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--partitions", type=int, nargs="+", default=[8, 64, 256])
    parser.add_argument("--rounds", type=int, default=2)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="parley-partitions-", ignore_cleanup_errors=True) as name:
        main(options.partitions, options.rounds, Path(name))
