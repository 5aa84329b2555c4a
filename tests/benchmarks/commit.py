"""What the finish of a request costs: how long it takes, and what it takes from the tokens.

    python -m tests.benchmarks.commit [--seconds 10] [--rounds 3] [--requests 300]

First one partition's owner alone finishes requests at Poisson times: from the delivery of `done` to the commit, with
the transaction and with a producer that sends the same records without one and commits nothing. Then three whole
workers with an engine that does not wait, one of them without transactions and one without audit, answer the same
backlog in turns.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from app.delivery.clients import RETRIABLE_ERRORS, Clients
from app.delivery.commits.changelog import create_changelogs
from app.delivery.commits.commit import Commit, CommitQueue
from app.delivery.ownership import Ownership, PartitionContext
from app.delivery.record import REQUESTS, Outgoing, Record
from app.delivery.resume.token_producer import TokenProducer
from app.delivery.taking_over import take_over
from app.kafka.topics import create_topics
from app.local.kafka import KafkaCluster
from app.settings import Settings
from app.wire.event import EventType, TokenEvent
from tables import records
from tables.conversations import MemoryRules
from tables.records import Change, Ended, Table, Turn
from tests.faults.plugs import Untransacted
from tests.faults.worker_process import WorkerProcess

RATES = (1, 10, 50)
USERS = 200
TOKENS = 64
TURN = Turn("request", "Where is my order 48213?", "Your order 48213 arrives in 2 to 3 days. " * 4, 1)


class PlainClients(Clients):
    def transactional_producer(self, _partition: int) -> AIOKafkaProducer:
        return Untransacted(**self.settings.cluster.options(), enable_idempotence=True, linger_ms=0)


@asynccontextmanager
async def owned(clients: Clients) -> AsyncIterator[Ownership]:
    """A partition of these clients' settings, owned as a worker owns it."""
    producer = TokenProducer(clients)
    place = PartitionContext(0, clients.settings, clients, producer, CommitQueue())
    while (ownership := await _taken(place)) is None:
        await asyncio.sleep(0.5)
    running = asyncio.create_task(ownership.run())
    try:
        yield ownership
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
        await ownership.end()
        await producer.stop()


async def _taken(place: PartitionContext) -> Ownership | None:
    """None while a broker that has just started knows no coordinator."""
    try:
        return await take_over(place, set())
    except RETRIABLE_ERRORS:
        return None


async def finish(own: Ownership, offset: int, waits: list[float]) -> None:
    user = f"user-{offset % USERS}"
    done = TokenEvent(type=EventType.DONE, request_id=str(offset), user_id=user, conversation_id="default", index=9)
    await (await own.tokens.send(done, user.encode()))
    began = time.perf_counter()
    row = MemoryRules(10, 10**12).remember(None, TURN, 1)
    changes = (
        Change(Table.CONVERSATIONS, records.key(user, "default"), records.encode(row)),
        Change(Table.ENDED, records.key(user, str(offset)), records.encode(Ended(1))),
    )
    turn = Outgoing(own.context.settings.topic("turns"), user.encode(), records.encode(TURN))
    await own.context.queue.put(Commit(Record(REQUESTS, 0, offset, 1, None, None), changes, (turn,)))
    waits.append(time.perf_counter() - began)


async def finishes(own: Ownership, rate: float, seconds: float, chance: random.Random) -> list[float]:
    """Seconds from `done` to the commit of each, at `rate` a second."""
    waits: list[float] = []
    at = time.monotonic()
    until = at + seconds
    async with asyncio.TaskGroup() as group:
        while at < until:
            await asyncio.sleep(at - time.monotonic())
            offset = own.offsets[REQUESTS].next
            own.open(Record(REQUESTS, 0, offset, 1, None, None))
            group.create_task(finish(own, offset, waits))
            at += chance.expovariate(rate)
    return waits


async def durations(settings: Settings, plain: Settings, seconds: float) -> None:
    print(f"{'done to committed, one partition':<34}{'p50':>9}{'p99':>9}{'without':>12}{'p99':>9}   (ms)", flush=True)
    async with owned(Clients(settings)) as own, owned(PlainClients(plain)) as bare:
        for rate in RATES:
            long = max(seconds, 20 / rate)
            both = [await finishes(owner, rate, long, random.Random(rate)) for owner in (own, bare)]
            (p50, p99), (bare50, bare99) = map(quantiles, both)
            print(f"{rate:>4} finishes/s{'':<20}{p50:>9.1f}{p99:>9.1f}{bare50:>12.1f}{bare99:>9.1f}", flush=True)


def quantiles(waits: list[float]) -> tuple[float, float]:
    ordered = sorted(waits)
    return statistics.median(ordered) * 1000, ordered[int(0.99 * (len(ordered) - 1))] * 1000


async def tokens_per_s(settings: Settings, requests: int, tokens: int) -> float:
    """Of a worker that is given `requests` at once, from the first record to the last `done`."""
    consumer = AIOKafkaConsumer(**settings.cluster.options(), isolation_level="read_committed")
    producer = AIOKafkaProducer(**settings.cluster.options(), linger_ms=5)
    await consumer.start()
    await producer.start()
    try:
        consumer.assign([TopicPartition(settings.topic("tokens"), number) for number in range(settings.partitions)])
        await consumer.seek_to_end()
        began, left = time.perf_counter(), requests
        for number in range(requests):
            user = f"user-{number % USERS}"
            asked = {"request_id": f"{began}-{number}", "user_id": user, "prompt": "hello", "max_tokens": tokens}
            await producer.send(settings.topic("requests"), json.dumps(asked).encode(), key=user.encode())
        while left:
            for found in (await consumer.getmany(timeout_ms=500)).values():
                left -= sum(b'"type":"done"' in record.value for record in found)
        return requests * tokens / (time.perf_counter() - began)
    finally:
        await consumer.stop()
        await producer.stop()


async def throughput(
    settings: Settings, plain: Settings, unaudited: Settings, options: argparse.Namespace, folder: Path
) -> None:
    with (
        WorkerProcess(settings, folder / "worker.log") as worker,
        WorkerProcess(plain, folder / "plain.log", ("no_transactions", 0)) as bare,
        WorkerProcess(unaudited, folder / "unaudited.log") as silent,
    ):
        for one in (worker, bare, silent):
            await asyncio.to_thread(one.wait_owning, settings.partitions)
        found: dict[str, list[float]] = {"with": [], "without": [], "unaudited": []}
        for number in range(options.rounds + 1):
            for name, of in (("with", settings), ("without", plain), ("unaudited", unaudited)):
                rate = await tokens_per_s(of, options.requests, options.tokens)
                if number:  # the first round warms up
                    found[name].append(rate)
    rates = {name: statistics.median(of_rounds) for name, of_rounds in found.items()}
    print(
        f"tokens/s of a worker, answers of {options.tokens} tokens: {rates['with']:,.0f} with the atomic finish,",
        end=" ",
    )
    print(f"{rates['without']:,.0f} without: {rates['with'] / rates['without']:.2f} times;", end=" ")
    print(f"{rates['unaudited']:,.0f} without audit: {rates['with'] / rates['unaudited']:.2f} times")


async def main(options: argparse.Namespace, folder: Path) -> None:
    kafka = KafkaCluster(folder / "kafka")
    await asyncio.to_thread(kafka.start)
    try:
        alone, plain, worker, bare, silent = [
            Settings(
                _env_file=None,
                broker=kafka.broker_setting,
                topic_prefix=f"{name}-",
                app_id=name,
                data_dir=folder / name,
                partitions=4,
                engine="paced",
                embedder="none",
                paced_tokens_per_s=1e6,
            )
            for name in ("alone", "plain", "worker", "bare", "silent")
        ]
        silent = silent.model_copy(update={"audit_retention_s": 0})
        for settings in (alone, plain, worker, bare, silent):
            await create_topics(settings)
            await create_changelogs(settings)
        await durations(alone, plain, options.seconds)
        await throughput(worker, bare, silent, options, folder)
    finally:
        kafka.kill()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=10.0, help="of each rate")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--requests", type=int, default=300)
    parser.add_argument("--tokens", type=int, default=TOKENS, help="of each answer")
    with tempfile.TemporaryDirectory(prefix="parley-finish-", ignore_cleanup_errors=True) as name:
        asyncio.run(main(parser.parse_args(), Path(name)))
