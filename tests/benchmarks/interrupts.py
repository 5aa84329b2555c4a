"""How long until the first token of a message that ends the answer before it, beside plain requests in the same run:
`python -m tests.benchmarks.interrupts --seconds 40 --per-s 15`.

Each of 500 users has a conversation; each second answer of it is ended by the next message, 0.4 s after it was asked
for. As many plain requests of others come in between. Arrivals are planned, and waits count from the planned moment; a
token's time is when a consumer of `tokens` has it. A wait that never ended is infinite.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from app.kafka.topics import create_topics
from app.local.kafka import KafkaCluster
from app.settings import Settings
from app.wire.codec import decode
from app.wire.event import TokenEvent
from tests.benchmarks.stats import quantile
from tests.faults.worker_process import WorkerProcess

USERS = 500
WANTED_S = 0.15
"""By which the 99th percentile of the first token may exceed a plain request's."""
_AFTER_S = 0.4
_LAST_S = 10.0
_LONG: dict[str, Any] = {"max_tokens": 250}
_SHORT: dict[str, Any] = {"max_tokens": 5}
_NAMES = {"long": "ended by the next message", "ends": "ends the one before it", "plain": "plain"}


@dataclass(slots=True)
class Seen:
    """By request: when it was due, when its first token was there, and how it ended."""

    due: dict[str, float] = field(default_factory=dict)
    first: dict[str, float] = field(default_factory=dict)
    ends: dict[str, str] = field(default_factory=dict)

    def read(self, event: TokenEvent) -> None:
        name = event.request_id or ""
        if event.tokens:
            self.first.setdefault(name, time.perf_counter())
        if event.is_end:
            self.ends[name] = str(event.finish_reason if event.error is None else event.error.code)

    def waits(self, kind: str) -> list[float]:
        return [self.first.get(name, math.inf) - due for name, due in self.due.items() if name.startswith(kind)]


def plan(seconds: float, per_s: float) -> Iterator[tuple[float, str, str, dict[str, Any]]]:
    """When each request is due, its id, its user and its fields, in order."""
    due: list[tuple[float, str, str, dict[str, Any]]] = []
    for number in range(round(seconds * per_s)):
        at, user = number / per_s, f"user-{number % USERS}"
        due.append((at, f"long-{number}", user, _LONG))
        due.append((at + _AFTER_S, f"ends-{number}", user, {**_SHORT, "while_busy": "interrupt"}))
        due.append((at + 0.5 / per_s, f"plain-{number}", f"plain-{number}", _SHORT))
    yield from sorted(due, key=lambda one: one[0])


async def measure(settings: Settings, seconds: float, per_s: float) -> Seen:
    seen, options = Seen(), settings.cluster.options()
    async with (
        AIOKafkaProducer(**options) as producer,
        AIOKafkaConsumer(settings.topic("tokens"), **options, fetch_max_wait_ms=20) as consumer,
    ):
        await consumer.seek_to_end()

        async def read() -> None:
            async for record in consumer:
                seen.read(decode(TokenEvent, record.value, record.headers))

        reading = asyncio.create_task(read())
        began = time.perf_counter()
        for at, request_id, user, fields in plan(seconds, per_s):
            await asyncio.sleep(max(0.0, began + at - time.perf_counter()))
            seen.due[request_id] = began + at
            asked = {"request_id": request_id, "user_id": user, "prompt": "hello there", **fields}
            await producer.send(settings.topic("requests"), json.dumps(asked).encode(), key=user.encode())
        until = time.perf_counter() + _LAST_S
        while seen.ends.keys() < seen.due.keys() and time.perf_counter() < until:
            await asyncio.sleep(0.1)
        reading.cancel()
        with suppress(asyncio.CancelledError):
            await reading
    return seen


def report(seen: Seen) -> bool:
    """Whether all ended as they had to, and the first tokens came in time."""
    print("| requests | sent | first token p50 | p99 | ended as |\n|---|---|---|---|---|")
    for kind, name in _NAMES.items():
        waits = [1000 * one for one in seen.waits(kind)]
        ends = Counter(seen.ends.get(one, "never") for one in seen.due if one.startswith(kind))
        told = ", ".join(f"{reason} {count}" for reason, count in sorted(ends.items()))
        print(f"| {name} | {len(waits)} | {quantile(waits, 0.5):.0f} ms | {quantile(waits, 0.99):.0f} ms | {told} |")
    over = quantile(seen.waits("ends"), 0.99) - quantile(seen.waits("plain"), 0.99)
    ratio = quantile(seen.waits("ends"), 0.5) / quantile(seen.waits("plain"), 0.5)
    print(f"\np99 over a plain request's: {1000 * over:.0f} ms (wanted: {1000 * WANTED_S:.0f}); p50: {ratio:.2f} times")
    wrong = {name for name, _ in seen.due.items() if name.startswith("long") and seen.ends.get(name) != "cancelled"}
    wrong |= {name for name in seen.due if not name.startswith("long") and seen.ends.get(name) != "length"}
    if wrong:
        print(f"ended otherwise: {sorted(wrong)[:10]}")
    return over <= WANTED_S and not wrong


async def run(seconds: float, per_s: float, folder: Path) -> bool:
    cluster = KafkaCluster(folder / "kafka")
    await asyncio.to_thread(cluster.start)
    try:
        values: dict[str, Any] = {"engine": "paced", "paced_tokens_per_s": 50.0, "embedder": "none", "partitions": 4}
        settings = Settings(_env_file=None, broker=cluster.broker_setting, data_dir=folder / "data", **values)
        await create_topics(settings)
        with WorkerProcess(settings, folder / "worker.log") as worker:
            await asyncio.to_thread(worker.wait_owning, settings.partitions)
            return report(await measure(settings, seconds, per_s))
    finally:
        cluster.kill()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.interrupts", description=__doc__)
    parser.add_argument("--seconds", type=float, default=40.0, help="how long requests come")
    parser.add_argument("--per-s", type=float, default=15.0, help="interrupts a second, and plain requests beside them")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="parley-interrupts-", ignore_cleanup_errors=True) as folder:
        return 0 if asyncio.run(run(options.seconds, options.per_s, Path(folder))) else 1


if __name__ == "__main__":
    sys.exit(main())
