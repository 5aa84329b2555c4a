"""What watching costs: CPU a token, and tokens/s, of workers that differ in nothing else, in turns in one run.

    python -m tests.benchmarks.telemetry

The `paced` engine speaks as fast as it is asked, so all that is measured is the pipeline around a model: with one that
computes, the shares are smaller. A worker's CPU time is its own; tokens/s on a machine that is busy are not.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import statistics
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import psutil
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from app.kafka.topics import create_topics
from app.local.kafka import KafkaCluster
from app.settings import Settings
from tests.faults.worker_process import WorkerProcess

PARTITIONS = 4
USERS = 32
TOKENS = 64


class Unwatched(WorkerProcess):
    program: ClassVar[tuple[str, ...]] = (sys.executable, "-m", "tests.benchmarks.unwatched_worker")


@dataclass(slots=True)
class Way:
    name: str
    worker: WorkerProcess
    cpu_us: list[float] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)


class Sink(BaseHTTPRequestHandler):
    """Takes traces, and throws them away."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("content-length") or 0))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        return None


@contextmanager
def sink() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Sink)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1/traces"
    finally:
        server.shutdown()
        server.server_close()


def settings_of(broker: str, folder: Path, **values: Any) -> Settings:
    name = uuid.uuid4().hex[:8]
    base: dict[str, Any] = {
        "broker": broker,
        "topic_prefix": f"{name}-",
        "data_dir": folder / name,
        "partitions": PARTITIONS,
    }
    return Settings(_env_file=None, engine="paced", embedder="none", paced_tokens_per_s=2000, **{**base, **values})


def ways(broker: str, folder: Path, traces_at: str) -> list[Way]:
    def way(name: str, kind: type[WorkerProcess] = WorkerProcess, **values: Any) -> Way:
        settings = settings_of(broker, folder, **values)
        asyncio.run(create_topics(settings))
        return Way(name, kind(settings, folder / f"{name}.log", OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=traces_at))

    return [
        way("unwatched", Unwatched, usage_window_s=0),
        way("metrics and log", usage_window_s=0),
        way("and usage"),
        way("and 1 in 10 traced", traces="otlp", traces_sample=0.1),
        way("and all traced", traces="otlp", traces_sample=1.0),
    ]


async def measure(way: Way, requests: int) -> None:
    """One stretch of load, from its first record to the last turn."""
    settings = way.worker.settings
    turns = AIOKafkaConsumer(**settings.cluster.options(), isolation_level="read_committed")
    producer = AIOKafkaProducer(**settings.cluster.options(), linger_ms=5)
    await asyncio.gather(turns.start(), producer.start())
    turns.assign([TopicPartition(settings.topic("turns"), number) for number in range(PARTITIONS)])
    await turns.seek_to_end()
    for at in turns.assignment():
        await turns.position(at)
    process = psutil.Process(way.worker.pid)
    before, began, done = process.cpu_times(), time.monotonic(), 0
    for number in range(requests):
        user = f"user-{number % USERS}"
        record = {"request_id": uuid.uuid4().hex, "user_id": user, "prompt": "how are you", "max_tokens": TOKENS}
        record["conversation_id"] = f"c{number}"
        await producer.send(settings.topic("requests"), json.dumps(record).encode(), key=user.encode())
    while done < requests:
        done += sum(map(len, (await turns.getmany(timeout_ms=100)).values()))
    after, seconds = process.cpu_times(), time.monotonic() - began
    await asyncio.gather(turns.stop(), producer.stop())
    cpu = after.user + after.system - before.user - before.system
    way.cpu_us.append(cpu * 1e6 / (requests * TOKENS))
    way.rates.append(requests * TOKENS / seconds)


async def run(all_ways: list[Way], rounds: int, requests: int) -> None:
    for way in all_ways:
        await measure(way, requests // 4)
        way.cpu_us.clear()
        way.rates.clear()
    for number in range(rounds):
        for way in all_ways if number % 2 == 0 else all_ways[::-1]:
            await measure(way, requests)
        print(f"after round {number + 1} of {rounds}\n{report(all_ways)}", flush=True)


def report(all_ways: list[Way]) -> str:
    """Ratios are of the same round, so that what else the machine does falls out of them."""
    first = all_ways[0]
    lines = ["| worker | CPU us/token | ratio | tokens/s | ratio |", "|---|---|---|---|---|"]
    for way in all_ways:
        cpu = statistics.median(a / b for a, b in zip(way.cpu_us, first.cpu_us, strict=True))
        rate = statistics.median(a / b for a, b in zip(way.rates, first.rates, strict=True))
        stats = f"{statistics.median(way.cpu_us):.1f} | {cpu:.3f} | {statistics.median(way.rates):.0f} | {rate:.3f}"
        lines.append(f"| {way.name} | {stats} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--requests", type=int, default=300, help="of a stretch")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # its servers end with it
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        kafka = KafkaCluster(folder / "kafka")
        stack.callback(kafka.kill)
        kafka.start()
        all_ways = ways(kafka.broker_setting, folder, stack.enter_context(sink()))
        for way in all_ways:
            stack.enter_context(way.worker)
        for way in all_ways:
            way.worker.wait_owning(PARTITIONS)
        asyncio.run(run(all_ways, options.rounds, options.requests))


if __name__ == "__main__":
    main()
