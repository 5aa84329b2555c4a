"""What routes are worth: `python -m tests.benchmarks.routes`.

One worker, a model of 25 million parameters as PARLEY_MODEL, and the demo model beside it as `small`. Every load is
open loop and is given twice in one run, without the policy and with it.

fast path: four of five prompts are short, and the route `fast` gives those to the small model.
overload: twice the requests that the large model can answer; the route `relief` is on while the first tokens are late.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import msgspec
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from app.kafka.topics import create_topics
from app.local.kafka import KafkaCluster
from app.settings import Settings
from app.wire.codec import decode
from app.wire.event import CACHED, EventType, TokenEvent
from models.checkpoint_files import DEMO
from tests.benchmarks import random_llama
from tests.benchmarks.stats import quantile
from tests.faults.worker_process import WorkerProcess

TOKENS = 24
SHORT = "Where is my order 4711?"
LONG = "Hi, I am Nina, and my parcel has not come yet. " * 6 + SHORT
PROMPTS = [SHORT] * 4 + [LONG]
MODELS = '[models.small]\npath = "demo"\n'
FAST = '\n[[routes]]\nname = "fast"\nwhen = { prompt_tokens_below = 30 }\nmodel = "small"\n'
RELIEF = """
[[routes]]
name = "relief"
when = { first_token_p95_ms_above = 1000, for_s = 2 }
until = { first_token_p95_ms_below = 400, for_s = 5 }
model = "small"
notice = "degraded"
"""


@dataclass
class Seen:
    """One answer; times are seconds after the moment at which it was due."""

    due: float
    first: float | None = None
    end: float | None = None
    tokens: int = 0
    model: str = ""
    is_cached: bool = False


@dataclass
class Run:
    seconds: float
    answers: list[Seen] = field(default_factory=list)

    def line(self, name: str) -> str:
        firsts = [one.first if one.first is not None else self.seconds for one in self.answers]
        small = [one.model.startswith("demo@") for one in self.answers]
        turns = sum(one != other for one, other in pairwise(small))
        tokens = sum(one.tokens for one in self.answers if one.end is not None and one.due + one.end <= self.seconds)
        cells = (
            name,
            len(self.answers),
            f"{tokens / self.seconds:.0f}",
            f"{1000 * quantile(firsts, 0.5):.0f}",
            f"{1000 * quantile(firsts, 0.95):.0f}",
            f"{100 * sum(small) / len(small):.0f} %",
            turns,
        )
        return "| " + " | ".join(map(str, cells)) + " |"


async def run(
    settings: Settings, rate: float, seconds: float, prompts: Sequence[str], at_once: int = 0, **fields: object
) -> Run:
    """`rate` requests a second, at random moments; with `at_once`, that many at any time. `fields` are of each."""
    chance, found, name = random.Random(5), Run(seconds), f"{time.time_ns()}"
    seen: dict[str, Seen] = {}
    producer = AIOKafkaProducer(**settings.cluster.options())
    consumer = AIOKafkaConsumer(**settings.cluster.options(), fetch_max_wait_ms=10)
    await producer.start()
    await consumer.start()
    tokens = settings.topic("tokens")
    partitions = [TopicPartition(tokens, number) for number in range(settings.partitions)]
    consumer.assign(partitions)
    await consumer.seek_to_end(*partitions)
    for partition in partitions:
        await consumer.position(partition)
    began = time.monotonic()
    free = asyncio.Semaphore(at_once or 1_000_000)

    async def read() -> None:
        while True:
            for records in (await consumer.getmany(timeout_ms=50)).values():
                now = time.monotonic() - began
                for record in records:
                    event = decode(TokenEvent, record.value, record.headers)
                    one = seen.get(event.request_id or "")
                    if one is None:
                        continue
                    one.model = event.model_version or one.model
                    one.is_cached |= event.notice is not None and event.notice.code == CACHED
                    if event.type is EventType.TOKEN:
                        one.first = now - one.due if one.first is None else one.first
                        one.tokens += len(event.tokens or ())
                    elif event.is_end:
                        one.end = now - one.due
                        free.release()

    reading = asyncio.create_task(read())
    due, number = 0.0, 0
    while due < seconds:
        if at_once:
            await free.acquire()
            due = time.monotonic() - began
        else:
            due += chance.expovariate(rate)
            await asyncio.sleep(max(0.0, began + due - time.monotonic()))
        request_id, user = f"{name}.{number}", f"user-{name}-{number}"  # each run has new users, without history
        number += 1
        seen[request_id] = Seen(due)
        found.answers.append(seen[request_id])
        request = {"request_id": request_id, "user_id": user, "prompt": chance.choice(prompts), "max_tokens": TOKENS}
        value = msgspec.json.encode({**request, "ignore_eos": True, "temperature": 0, **fields})
        await producer.send(settings.topic("requests"), value, key=user.encode())
    deadline = time.monotonic() + 4 * seconds
    while any(one.end is None for one in found.answers) and time.monotonic() < deadline:
        await asyncio.sleep(0.1)
    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)
    await consumer.stop()
    await producer.stop()
    return found


async def main(seconds: float, folder: Path) -> None:
    cluster = KafkaCluster(folder / "kafka", 1)
    await asyncio.to_thread(cluster.start)
    model = random_llama.write(folder / "large", DEMO)
    policy = folder / "policy.toml"
    policy.write_text(MODELS)
    settings = Settings(
        _env_file=None,
        broker=cluster.broker_setting,
        data_dir=folder / "data",
        model=str(model),
        embedder="none",
        partitions=4,
        policy=policy,
    )
    await create_topics(settings)
    worker = WorkerProcess(settings, folder / "worker.log").start()
    try:
        await asyncio.to_thread(worker.wait_owning, settings.partitions)
        await run(settings, 2, 5, [SHORT])  # warm
        closed = await run(settings, 0, seconds / 2, PROMPTS, at_once=16)
        capacity = sum(one.end is not None and one.due + one.end <= seconds / 2 for one in closed.answers) / (
            seconds / 2
        )
        report(f"the large model answers {capacity:.1f} requests/s of {TOKENS} tokens\n")
        report("| load | requests | tokens/s | first token p50 ms | p95 ms | by the small model | changes |")
        report("|---|---|---|---|---|---|---|")
        for name, routes, share in (("fast path", FAST, 1.5), ("overload", RELIEF, 2.0)):
            for kind, text in (("without", MODELS), ("with", MODELS + routes)):
                policy.write_text(text)
                await asyncio.sleep(3)  # the worker reads the file every second
                found = await run(settings, share * capacity, seconds, PROMPTS)
                report(found.line(f"{name}, {kind}"))
    finally:
        worker.stop()
        cluster.kill()


def report(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.routes", description=__doc__)
    parser.add_argument("--seconds", type=float, default=30.0, help="of each load")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="parley-routes-", ignore_cleanup_errors=True) as place:
        sys.exit(asyncio.run(main(options.seconds, Path(place))))
