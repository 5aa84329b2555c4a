"""Erasing a user with very many conversations, while another user of the partition asks.

    python -m tests.benchmarks.heavy_erasure [--conversations 1400000]

The rows stand in the changelog before the worker starts. The longest step of its event loop is the longest answer of
its `/healthz`, asked 50 times a second; it contains the wait for a processor of this machine.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import tempfile
import time
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from app.delivery.commits.changelog import changelog_topic, create_changelogs
from app.kafka.topics import create_topics
from app.local.kafka import KafkaCluster
from app.settings import Settings
from app.wire.codec import decode
from app.wire.event import EventType, TokenEvent
from tables import records
from tables.records import Conversation, Table, Turn
from tests.faults.worker_process import WorkerProcess

_HEAVY, _OTHER = "heavy", "neighbour"
_EVERY_S = 0.25
_LONGEST_S = 1800.0


@dataclass
class Neighbour:
    """Asks all the time."""

    settings: Settings
    producer: AIOKafkaProducer
    sent: dict[str, float] = field(default_factory=dict)
    first_token_s: dict[str, float] = field(default_factory=dict)

    async def ask(self) -> None:
        while True:
            request_id = f"x{len(self.sent)}"
            self.sent[request_id] = time.monotonic()
            body = {"request_id": request_id, "user_id": _OTHER, "prompt": "hi", "max_tokens": 3}
            value = json.dumps(body | {"conversation_id": request_id}).encode()
            await self.producer.send_and_wait(self.settings.topic("requests"), value, key=_OTHER.encode())
            await asyncio.sleep(_EVERY_S)

    async def read(self) -> None:
        async with consumer(self.settings, "tokens") as tokens:
            async for record in tokens:
                event = decode(TokenEvent, record.value, record.headers)
                if event.type is EventType.TOKEN and event.request_id in self.sent:
                    took = time.monotonic() - self.sent[event.request_id]
                    self.first_token_s.setdefault(event.request_id, took)

    def between(self, begin: float, end: float) -> list[float]:
        return sorted(took for key, took in self.first_token_s.items() if begin <= self.sent[key] < end)


class consumer:  # noqa: N801 - reads like a function
    """The committed records of the topic's only partition, from now on."""

    def __init__(self, settings: Settings, topic: str) -> None:
        self._at = TopicPartition(settings.topic(topic), 0)
        self._settings = settings

    async def __aenter__(self) -> AIOKafkaConsumer:
        self._consumer = AIOKafkaConsumer(
            **self._settings.cluster.options(), enable_auto_commit=False, isolation_level="read_committed"
        )
        await self._consumer.start()
        self._consumer.assign([self._at])
        await self._consumer.seek_to_end()
        await self._consumer.position(self._at)
        return self._consumer

    async def __aexit__(self, *_: object) -> None:
        await self._consumer.stop()


async def write_rows(settings: Settings, producer: AIOKafkaProducer, count: int) -> None:
    now, topic = int(time.time() * 1000), changelog_topic(settings, Table.CONVERSATIONS)
    for begin in range(0, count, 5000):
        sent = []
        for number in range(begin, min(begin + 5000, count)):
            row = records.encode(Conversation(now, (Turn(f"r{number}", "q" * 100, "a" * 200, now),)))
            sent.append(await producer.send(topic, row, key=records.key(_HEAVY, f"c{number}"), partition=0))
        await asyncio.gather(*sent)


async def longest_step(worker: WorkerProcess, steps: list[float]) -> None:
    def ask() -> float:
        began = time.monotonic()
        with urllib.request.urlopen(f"http://127.0.0.1:{worker.web_port}/healthz", timeout=60) as response:
            response.read()
        return time.monotonic() - began

    while True:
        steps.append(await asyncio.to_thread(ask))
        await asyncio.sleep(0.02)


async def until_erased(audit: AIOKafkaConsumer) -> None:
    async for record in audit:
        if b'"erasure"' in record.value:
            return


def row(name: str, seconds: Sequence[float]) -> str:
    ordered = sorted(seconds)
    p50, p99 = (ordered[int(share * len(ordered))] if ordered else float("nan") for share in (0.5, 0.99))
    return f"{name:28} {len(ordered):6} {p50 * 1000:8.0f} {p99 * 1000:8.0f} {max(ordered, default=0) * 1000:8.0f}"


async def measure(settings: Settings, worker: WorkerProcess, conversations: int) -> None:
    producer = AIOKafkaProducer(**settings.cluster.options(), linger_ms=20)
    await producer.start()
    await write_rows(settings, producer, conversations)
    print(f"{conversations} rows written", flush=True)
    worker.start_timeout_s = _LONGEST_S
    worker.start().wait_owning(1)
    neighbour = Neighbour(settings, producer)
    steps: tuple[list[float], list[float]] = ([], [])
    async with consumer(settings, "audit") as audit:
        work = [asyncio.create_task(one) for one in (neighbour.read(), neighbour.ask())]
        watch = asyncio.create_task(longest_step(worker, steps[0]))
        await asyncio.sleep(15)
        watch.cancel()
        began = time.monotonic()
        erase = json.dumps({"type": "erase", "user_id": _HEAVY}).encode()
        await producer.send_and_wait(settings.topic("controls"), erase, key=_HEAVY.encode())
        work.append(asyncio.create_task(longest_step(worker, steps[1])))
        await asyncio.wait_for(until_erased(audit), _LONGEST_S)
        ended = time.monotonic()
    for task in work:
        task.cancel()
    await asyncio.gather(*work, return_exceptions=True)
    await producer.stop()
    fences = worker.log.read_bytes().count(b": epoch ")
    print(f"erased in {ended - began:.0f} s, {fences} fences")
    print(f"{'milliseconds':28} {'count':>6} {'p50':>8} {'p99':>8} {'longest':>8}")
    print(row("first token before", neighbour.between(0, began)))
    print(row("first token meanwhile", neighbour.between(began, ended)))
    print(row("/healthz before", steps[0]))
    print(row("/healthz meanwhile", steps[1]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--conversations", type=int, default=1_400_000)
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp())
    kafka = KafkaCluster(folder / "kafka")
    kafka.start()
    settings = Settings(
        _env_file=None,
        broker=kafka.broker_setting,
        data_dir=folder / "data",
        partitions=1,
        engine="paced",
        embedder="none",
        conversation_ttl_s=86400.0,
    )
    worker = WorkerProcess(settings, folder / "worker.log")
    try:
        asyncio.run(prepare(settings))
        asyncio.run(measure(settings, worker, options.conversations))
    finally:
        worker.kill()
        kafka.kill()
        shutil.rmtree(folder, ignore_errors=True)


async def prepare(settings: Settings) -> None:
    await create_topics(settings)
    await create_changelogs(settings)


if __name__ == "__main__":
    main()
