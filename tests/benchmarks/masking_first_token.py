"""How much later masking makes the first token: `python -m tests.benchmarks.masking_first_token`.

A whole worker whose engine starts at once, one request after the other, under three policies in turns. Each user has a
history of ten turns full of values; the request that is measured is the eleventh. The values that are known of the
history are hidden again, and only the new prompt is analyzed.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections import defaultdict
from pathlib import Path

from app.local.kafka import KafkaCluster
from tests.benchmarks.masking import Sentences
from tests.benchmarks.stats import quantile
from tests.faults.worker_process import WorkerProcess
from tests.integration.worker.client import Client
from tests.integration.worker.conftest import module_settings

POLICIES = {
    "without": "",
    "patterns": '[guard]\npii = "mask"\npii_entities = ["EMAIL_ADDRESS", "PHONE_NUMBER", "CREDIT_CARD", "IBAN_CODE"]\n',
    "patterns and names": '[guard]\npii = "mask"\n',
}
TURNS = 10
SIZES = (1_000, 30_000)
_LOADED_S = 12.0
"""A worker reads the file every second, and loads the analyzer."""


def prompt_of(sentences: Sentences, size: int) -> str:
    """Sentences of at least `size` characters."""
    text = sentences.next()[0]
    while len(text) < size:
        text = f"{text} {sentences.next()[0]}"
    return text


async def first_tokens(client: Client, size: int, users: int, seed: int) -> list[float]:
    """Milliseconds of the requests that follow a history of `size` characters."""
    found = []
    for number in range(users):
        sentences, user = Sentences(seed + number), client.user()
        for _ in range(TURNS):
            await client.asked(user, prompt_of(sentences, size // TURNS), max_tokens=1)
        began = time.monotonic()
        request_id = await client.ask(user, prompt_of(sentences, 80), max_tokens=1)
        await client.begun(user, request_id)
        found.append(1000 * (time.monotonic() - began))
        await client.answer(user, request_id)
    return found


async def measure(client: Client, policy: Path, rounds: int, users: int) -> None:
    found = defaultdict[tuple[str, int], list[float]](list)
    for number in range(rounds):
        for name, text in POLICIES.items():
            policy.write_text(text)
            await asyncio.sleep(_LOADED_S)
            for size in SIZES:
                found[name, size] += await first_tokens(client, size, users, seed=1000 * number)
        print(f"  round {number + 1} of {rounds}", flush=True)
    print(f"{rounds} rounds of {users} users\n")
    print("| history | masking | first token p50 ms | p99 ms |\n|---|---|---|---|")
    for size in SIZES:
        for name in POLICIES:
            values = found[name, size]
            print(f"| {size:,} characters | {name} | {quantile(values, 0.5):.1f} | {quantile(values, 0.99):.1f} |")


def run(folder: Path, rounds: int, users: int) -> None:
    policy = folder / "policy.toml"
    policy.write_text("")
    kafka = KafkaCluster(folder / "kafka")
    kafka.start()
    worker: WorkerProcess | None = None
    try:
        settings = module_settings(kafka, folder, policy=policy, paced_tokens_per_s=1000.0)
        worker = WorkerProcess(settings, folder / "worker.log").start()
        worker.wait_owning(settings.partitions)

        async def measured() -> None:
            async with Client(settings) as client:
                await measure(client, policy, rounds, users)

        asyncio.run(measured())
    finally:
        if worker is not None:
            worker.kill()
        kafka.kill()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.masking_first_token", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="of all policies")
    parser.add_argument("--users", type=int, default=30, help="by each policy and size, in each round")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="masking-", ignore_cleanup_errors=True) as place:
        run(Path(place), options.rounds, options.users)
