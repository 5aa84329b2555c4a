"""What a flood of one user costs another user of the same partition: the first tokens before and during it.

    python -m tests.benchmarks.flood [--waiting 560] [--plain 1000] [--seconds 2]
    python -m tests.benchmarks.flood --model demo --waiting 0 --plain 0 --long 100
    python -m tests.benchmarks.flood --model MODEL --waiting 0 --plain 0 --prompts 60 --words 2500

The flood has four kinds of requests, each in a conversation of its own: `--waiting` for tools that nobody runs,
`--plain` answers of `--seconds`, `--long` answers of 900 tokens, and `--prompts` of `--words`.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import tempfile
import time
from dataclasses import dataclass
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
_WORDS = [
    "order",
    "return",
    "parcel",
    "number",
    "delivery",
    "refund",
    "green",
    "table",
    "window",
    "garden",
    "river",
    "stone",
    "cloud",
]
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


@dataclass(frozen=True, slots=True)
class Flood:
    """How many requests of each kind."""

    waiting: int
    plain: int
    seconds: float
    long: int
    prompts: int
    words: int

    async def send(self, client: Client) -> None:
        chance = random.Random(1)
        for number in range(self.waiting):
            await client.ask("many", max_tokens=2, conversation_id=f"w{number}", **_WAITING)
        for number in range(self.plain):
            length = max(1, round(self.seconds * _TOKENS_PER_S))
            await client.ask("many", max_tokens=length, conversation_id=f"p{number}")
        for number in range(self.long):
            await client.ask("many", max_tokens=900, ignore_eos=True, conversation_id=f"l{number}")
        for number in range(self.prompts):
            prompt = " ".join(chance.choice(_WORDS) for _ in range(self.words))
            await client.ask("many", prompt, max_tokens=2, conversation_id=f"t{number}")


async def measure(settings: Settings, log: Path, flood: Flood) -> None:
    await create_topics(settings)
    with WorkerProcess(settings, log) as worker:
        await asyncio.to_thread(worker.wait_owning, settings.partitions)
        async with Client(settings) as client:
            report("before", await first_tokens(client))
            await flood.send(client)
            report("during", await first_tokens(client))
        worker.stop()


def report(name: str, waits: list[float]) -> None:
    p50, p99 = quantile(waits, 0.5), quantile(waits, 0.99)
    print(f"{name}: first token p50 {p50:.3f} s, p99 {p99:.3f} s, max {max(waits):.3f} s", flush=True)


def main(model: str, flood: Flood, folder: Path) -> None:
    kafka = KafkaCluster(folder / "kafka")
    kafka.start()
    try:
        settings = Settings(
            _env_file=None,
            broker=kafka.broker_setting,
            data_dir=folder / "data",
            partitions=1,
            embedder="none",
            paced_tokens_per_s=_TOKENS_PER_S,
            **({"model": model} if model else {"engine": "paced"}),
        )
        asyncio.run(measure(settings, folder / "worker.log", flood))
    finally:
        kafka.kill()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="", help="a model instead of an engine of 25 tokens a second and answer")
    parser.add_argument("--waiting", type=int, default=560)
    parser.add_argument("--plain", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--long", type=int, default=0)
    parser.add_argument("--prompts", type=int, default=0)
    parser.add_argument("--words", type=int, default=2500)
    options = vars(parser.parse_args())
    with tempfile.TemporaryDirectory(prefix="parley-flood-", ignore_cleanup_errors=True) as name:
        main(options.pop("model"), Flood(**options), Path(name))
