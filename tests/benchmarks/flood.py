"""What a flood of one user costs another user of the same partition: the first tokens before and during it.

    python -m tests.benchmarks.flood [--waiting 560] [--plain 1000] [--seconds 2]

The flood is that many requests whose tools nobody runs, and that many plain answers of so many seconds, each in a
conversation of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from pathlib import Path

from app.kafka.topics import create_topics
from app.local.kafka import KafkaCluster
from app.settings import Settings
from tests.benchmarks.stats import quantile
from tests.faults.load import TOOLS
from tests.faults.worker_process import WorkerProcess
from tests.integration.worker.client import Client

_ASKED = 60
_PAUSE_S = 0.25
_TOKENS_PER_S = 25.0
_WAITING = {"tools": TOOLS, "tool_mode": "kafka", "tool_timeout_ms": 3_600_000}


async def first_tokens(client: Client) -> list[float]:
    """Seconds to the first token of requests that one user sends one after the other."""
    found = []
    for number in range(_ASKED):
        began = time.perf_counter()
        request_id = await client.ask("other", max_tokens=2, conversation_id=f"{began}")
        await client.begun("other", request_id)
        found.append(time.perf_counter() - began)
        if number < _ASKED - 1:
            await asyncio.sleep(_PAUSE_S)
    return found


async def flood(client: Client, waiting: int, plain: int, seconds: float) -> None:
    length = max(1, round(seconds * _TOKENS_PER_S))
    for number in range(waiting):
        await client.ask("many", max_tokens=2, conversation_id=f"w{number}", **_WAITING)
    for number in range(plain):
        await client.ask("many", max_tokens=length, conversation_id=f"p{number}")


async def measure(settings: Settings, log: Path, waiting: int, plain: int, seconds: float) -> None:
    await create_topics(settings)
    with WorkerProcess(settings, log) as worker:
        await asyncio.to_thread(worker.wait_owning, settings.partitions)
        async with Client(settings) as client:
            report("before", await first_tokens(client))
            await flood(client, waiting, plain, seconds)
            report("during", await first_tokens(client))
        worker.stop()


def report(name: str, waits: list[float]) -> None:
    p50, p99 = quantile(waits, 0.5), quantile(waits, 0.99)
    print(f"{name}: first token p50 {p50:.3f} s, p99 {p99:.3f} s, max {max(waits):.3f} s", flush=True)


def main(waiting: int, plain: int, seconds: float, folder: Path) -> None:
    kafka = KafkaCluster(folder / "kafka")
    kafka.start()
    try:
        settings = Settings(
            _env_file=None,
            broker=kafka.broker_setting,
            data_dir=folder / "data",
            partitions=1,
            engine="paced",
            embedder="none",
            paced_tokens_per_s=_TOKENS_PER_S,
        )
        asyncio.run(measure(settings, folder / "worker.log", waiting, plain, seconds))
    finally:
        kafka.kill()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--waiting", type=int, default=560)
    parser.add_argument("--plain", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=2.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="parley-flood-", ignore_cleanup_errors=True) as name:
        main(options.waiting, options.plain, options.seconds, Path(name))
