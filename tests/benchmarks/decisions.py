"""What the response cache and recall are worth: `python -m tests.benchmarks.decisions`.

cache: the large model of routes.py, and prompts whose popularity follows Zipf's law, open loop, without the cache and
with it, in one run.
recall: the demo model, and users who gave their order number 30 turns ago. The history has 10 turns. How many answers
contain the number with 0, 2 and 5 related turns in the prompt, and how much later does the first token come?
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path

from app.kafka.topics import create_topics
from app.local.kafka import KafkaCluster
from app.local.milvus import MilvusNode
from app.local.ports import free_port
from app.settings import Settings
from models.checkpoint_files import DEMO
from tests.benchmarks import random_llama
from tests.benchmarks.routes import Run, report, run
from tests.benchmarks.stats import quantile
from tests.faults.worker_process import WorkerProcess
from tests.integration.worker.client import Client

CACHE = '[cache]\nttl_s = 600\nscope = "tenant"\n'
DISTINCT = 200
BACK = 30
FILLERS = ("What are your opening hours?", "Do you sell kettles?", "How are you?", "Can I return a lamp?")


def zipf(count: int) -> list[str]:
    """Prompts in a list in which the n-th has 1/n of the places of the first."""
    prompts = [f"Hi, I am customer {number}. Do you sell lamps of the kind {number}?" for number in range(count)]
    return [prompt for rank, prompt in enumerate(prompts, start=1) for _ in range(max(1, count // rank))]


async def cache(settings: Settings, seconds: float) -> None:
    assert settings.policy is not None
    closed = await run(settings, 0, seconds / 2, zipf(DISTINCT), at_once=16)
    capacity = sum(one.end is not None and one.due + one.end <= seconds / 2 for one in closed.answers) / (seconds / 2)
    report(f"cache: {DISTINCT} prompts; the model answers {capacity:.1f} requests/s\n")
    report("| load | requests | hits | tokens/s | first token p50 ms | p95 ms |\n|---|---|---|---|---|---|")
    for share in (0.7, 1.5):
        for kind, text in (("without", ""), ("with", CACHE)):
            settings.policy.write_text(text)
            await asyncio.sleep(3)  # the worker reads the file every second; a new file is an empty cache
            found = await run(settings, share * capacity, seconds, zipf(DISTINCT), tenant="bench")
            report(line(f"{share:g} of capacity, {kind}", found))


def line(name: str, found: Run) -> str:
    firsts = [one.first if one.first is not None else found.seconds for one in found.answers]
    tokens = sum(one.tokens for one in found.answers if one.end is not None and one.due + one.end <= found.seconds)
    hits = sum(one.is_cached for one in found.answers)
    cells = (
        name,
        len(found.answers),
        f"{100 * hits / len(found.answers):.0f} %",
        f"{tokens / found.seconds:.0f}",
        f"{1000 * quantile(firsts, 0.5):.0f}",
        f"{1000 * quantile(firsts, 0.95):.0f}",
    )
    return "| " + " | ".join(map(str, cells)) + " |"


async def recall(settings: Settings, users: int) -> None:
    report(f"\nrecall: {users} users, the fact is {BACK} turns back\n")
    report("| recall | answers that know it | first token p50 ms | p95 ms |\n|---|---|---|---|")
    async with Client(settings) as client:
        names = {f"recalls-{number}": 40_000 + 7 * number for number in range(users)}
        await asyncio.gather(*(_talk(client, user, number) for user, number in names.items()))
        await asyncio.sleep(5)  # the last turns are indexed
        for count in (0, 2, 5):
            known, firsts = 0, []
            for user, number in names.items():
                began = time.monotonic()
                request_id = await client.ask(
                    user, "What was my order number?", recall=count, store=False, temperature=0, max_tokens=40
                )
                await client.begun(user, request_id)
                firsts.append(time.monotonic() - began)
                known += str(number) in (await client.answer(user, request_id)).text
            p50, p95 = (1000 * quantile(firsts, share) for share in (0.5, 0.95))
            report(f"| {count} | {known} of {users} | {p50:.0f} | {p95:.0f} |")


async def _talk(client: Client, user: str, number: int) -> None:
    await client.asked(user, f"Hi, my order number is {number}.", temperature=0, max_tokens=40)
    for turn in range(BACK):
        await client.asked(user, FILLERS[turn % len(FILLERS)], temperature=0, max_tokens=12)


async def main(seconds: float, users: int, folder: Path) -> None:
    cluster = KafkaCluster(folder / "kafka", 1)
    await asyncio.to_thread(cluster.start)
    async with AsyncExitStack() as ending:
        ending.callback(cluster.kill)
        node = MilvusNode(folder / "milvus", free_port())
        await asyncio.to_thread(node.start)
        ending.callback(node.kill)
        large = str(random_llama.write(folder / "large", DEMO))
        for prefix, model, embedder in (("cache-", large, "none"), ("recall-", "demo", "minilm")):
            policy = folder / f"{prefix}policy.toml"
            policy.write_text("[recall]\nbudget_ms = 2000\n")
            settings = Settings(
                _env_file=None,
                broker=cluster.broker_setting,
                milvus_uri=node.uri,
                topic_prefix=prefix,
                app_id=f"{prefix}bench",
                data_dir=folder / prefix / "data",
                model=model,
                embedder=embedder,
                partitions=4,
                policy=policy,
            )
            settings.data_dir.parent.mkdir()
            await create_topics(settings)
            worker = WorkerProcess(settings, folder / f"{prefix}worker.log").start()
            try:
                await asyncio.to_thread(worker.wait_owning, settings.partitions)
                await run(settings, 2, 5, ["Hello"])  # warm
                await (cache(settings, seconds) if prefix == "cache-" else recall(settings, users))
            finally:
                worker.stop()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.decisions", description=__doc__)
    parser.add_argument("--seconds", type=float, default=30.0, help="of each load on the cache")
    parser.add_argument("--users", type=int, default=24, help="number of users in the part recall")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="parley-decisions-", ignore_cleanup_errors=True) as place:
        sys.exit(asyncio.run(main(options.seconds, options.users, Path(place))))
