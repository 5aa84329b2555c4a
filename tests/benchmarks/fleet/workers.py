"""The same load on 1, 2 and 4 workers, and on 8, 64 and 256 partitions."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import msgspec
import psutil

from app.kafka.topics import create_topics
from app.settings import Settings
from tests.benchmarks.fleet.costs import Costs
from tests.benchmarks.kafka_client import KafkaClient
from tests.benchmarks.load import Load, Reply
from tests.benchmarks.processes import processor_s
from tests.benchmarks.progress import report
from tests.benchmarks.result import Plot, Result, Series
from tests.benchmarks.stats import stats
from tests.faults.worker_process import WorkerProcess

FLEETS = ((1, 8), (2, 8), (4, 8), (1, 64), (4, 64), (1, 256), (4, 256))
LOAD = Load(seconds=15, rate=30, users=300, max_tokens=20)
LONG = Load(seconds=15, rate=10, users=300, max_tokens=120, seed=2)
"""For what a token costs beside its request."""
_WARM_UP = Load(seconds=5, rate=30, users=300, max_tokens=20, seed=99)
_IDLE_S = 8.0
_SETTLE_S = 4.0
COLUMNS = [
    "workers", "partitions", "worker ms/request", "broker ms/request", "of 120 tokens", "broker", "idle ms/s a worker",
    "broker idle ms/s", "MB a worker", "first p50 ms", "p99 ms", "failed",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Spent:
    """Processor seconds, and the seconds in which they were spent."""

    workers: float
    brokers: float
    seconds: float = 0.0

    @classmethod
    def now(cls, workers: Sequence[psutil.Process], brokers: Sequence[psutil.Process]) -> Spent:
        return cls(processor_s(one.pid for one in workers), processor_s(one.pid for one in brokers))


class Fleet(msgspec.Struct, frozen=True, kw_only=True):
    """Times are seconds; `idle` and `broker_idle` are cores, of each worker and of all brokers."""

    workers: int
    partitions: int
    request_s: float
    broker_request_s: float
    idle: float
    broker_idle: float
    memory: float
    first_p50: float
    first_p99: float
    failed: int
    long_request_s: float
    """Like the two `request_s`, of `LONG`."""
    long_broker_request_s: float


async def run(
    broker: str, brokers: Sequence[psutil.Process], folder: Path, costs: Costs, *, short: bool
) -> tuple[Result, Costs]:
    fleets = []
    for count, partitions in FLEETS[:2] if short else FLEETS:
        report(f"{count} workers, {partitions} partitions")
        fleets.append(await _measure(broker, brokers, folder, count, partitions, seconds=3 if short else LOAD.seconds))
    result = Result("workers", "30 requests/s of 20 tokens, then 10 of 120, on one to four workers", COLUMNS)
    result.rows = [
        [
            one.workers, one.partitions, one.request_s * 1e3, one.broker_request_s * 1e3, one.long_request_s * 1e3,
            one.long_broker_request_s * 1e3, one.idle * 1e3, one.broker_idle * 1e3, one.memory / 1e6,
            one.first_p50 * 1e3, one.first_p99 * 1e3, one.failed,
        ]
        for one in fleets
    ]  # fmt: skip
    lone = [one for one in fleets if one.workers == 1]
    if len(lone) > 1:
        many, few = lone[-1], lone[0]
        costs = msgspec.structs.replace(
            costs, partition_idle_share=max(0.0, (many.idle - few.idle) / (many.partitions - few.partitions))
        )
    result.plots = [
        Plot("Processor time a request", "workers", "ms, all workers together", _by_partitions(fleets)),
    ]
    first, more = fleets[0], LONG.max_tokens - LOAD.max_tokens
    token_s = max(0.0, (first.long_request_s - first.request_s) / more)
    broker_token_s = max(0.0, (first.long_broker_request_s - first.broker_request_s) / more)
    return result, msgspec.structs.replace(
        costs,
        worker_request_s=first.request_s - LOAD.max_tokens * token_s,
        worker_token_s=token_s,
        worker_idle_share=first.idle,
        broker_request_s=first.broker_request_s - LOAD.max_tokens * broker_token_s,
        broker_token_s=broker_token_s,
    )


def _by_partitions(fleets: Sequence[Fleet]) -> list[Series]:
    return [
        Series(
            f"{partitions} partitions",
            [str(one.workers) for one in fleets if one.partitions == partitions],
            [one.request_s * 1e3 for one in fleets if one.partitions == partitions],
        )
        for partitions in dict.fromkeys(one.partitions for one in fleets)
    ]


async def _measure(
    broker: str, brokers: Sequence[psutil.Process], folder: Path, count: int, partitions: int, *, seconds: float
) -> Fleet:
    settings = settings_of(broker, folder, f"w{count}p{partitions}", partitions)
    await create_topics(settings)
    with ExitStack() as running:
        fleet = start(running, settings, folder, count)
        await asyncio.to_thread(wait_divided, fleet, partitions)
        async with KafkaClient(
            broker.removeprefix("kafka://"), settings.topic("requests"), settings.topic("tokens")
        ) as client:
            await client.run(_WARM_UP)
            processes = [psutil.Process(worker.pid) for worker in fleet]
            replies, spent = await _spent(client, LOAD, seconds, processes, brokers)
            longer, spent_longer = await _spent(client, LONG, seconds, processes, brokers)
        await asyncio.sleep(_SETTLE_S)
        rest = Spent.now(processes, brokers)
        await asyncio.sleep(_IDLE_S)
        end = Spent.now(processes, brokers)
        memory = sum(process.memory_info().rss for process in processes) / count
    idle, broker_idle = (end.workers - rest.workers) / _IDLE_S, (end.brokers - rest.brokers) / _IDLE_S
    figures = stats(replies, seconds, seconds)
    return Fleet(
        workers=count,
        partitions=partitions,
        request_s=(spent.workers - idle * spent.seconds) / len(replies),
        broker_request_s=(spent.brokers - broker_idle * spent.seconds) / len(replies),
        idle=idle / count,
        broker_idle=broker_idle,
        memory=memory,
        first_p50=figures.first_p50,
        first_p99=figures.first_p99,
        failed=figures.failed + sum(reply.failed for reply in longer),
        long_request_s=(spent_longer.workers - idle * spent_longer.seconds) / len(longer),
        long_broker_request_s=(spent_longer.brokers - broker_idle * spent_longer.seconds) / len(longer),
    )


async def _spent(
    client: KafkaClient,
    load: Load,
    seconds: float,
    workers: Sequence[psutil.Process],
    brokers: Sequence[psutil.Process],
) -> tuple[list[Reply], Spent]:
    before, began = Spent.now(workers, brokers), time.monotonic()
    replies = await client.run(msgspec.structs.replace(load, seconds=seconds))
    await asyncio.sleep(1.0)  # the last commits
    after = Spent.now(workers, brokers)
    return replies, Spent(
        after.workers - before.workers, after.brokers - before.brokers, seconds=time.monotonic() - began
    )


def settings_of(broker: str, folder: Path, name: str, partitions: int, **others: float) -> Settings:
    return Settings.model_validate(
        {
            "broker": broker,
            "data_dir": folder / name,
            "topic_prefix": f"{name}-",
            "app_id": name,
            "partitions": partitions,
            "engine": "paced",
            "embedder": "none",
            **others,
        }
    )


def start(running: ExitStack, settings: Settings, folder: Path, count: int) -> list[WorkerProcess]:
    """Workers that `running` ends, each with a data directory of its own."""
    fleet = []
    for number in range(count):
        own = settings.model_copy(update={"data_dir": settings.data_dir / str(number)})
        fleet.append(running.enter_context(WorkerProcess(own, folder / f"{settings.app_id}-{number}.log")))
    return fleet


def wait_divided(fleet: Sequence[WorkerProcess], partitions: int) -> None:
    """Until every worker owns something, and together they have taken over every partition."""
    for worker in fleet:
        worker.wait_joined()
    for worker in fleet:
        worker.wait_owning(partitions // len(fleet))
