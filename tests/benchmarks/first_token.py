"""From produce to the first token event read, against a plain aiokafka echo in the same run.

    python -m tests.benchmarks.first_token [--rate 4] [--seconds 20] [--rounds 3] [--model demo]

Open loop: requests are sent at Poisson times whatever becomes of them. Rounds of the echo and of Parley alternate, so
that both see the same machine. The engine's own share is told by a run of the same prompts in this process.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Sequence
from pathlib import Path

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from app.local.kafka import KafkaCluster
from app.settings import Settings
from app.topics import create_topics
from tests.faults.worker_process import WorkerProcess

PARTITIONS = 4
PROMPT = "Where is my order 4711?"


class Probe:
    """Sends requests and notes when the first record with their id comes back."""

    def __init__(self, server: str, requests: str, replies: str) -> None:
        self._requests, self._replies = requests, replies
        self._producer = AIOKafkaProducer(bootstrap_servers=server, linger_ms=0)
        self._consumer = AIOKafkaConsumer(bootstrap_servers=server, isolation_level="read_committed")
        self._sent: dict[str, float] = {}
        self.waits: list[float] = []

    async def run(self, rate: float, seconds: float, seed: int) -> list[float]:
        await self._producer.start()
        await self._consumer.start()
        partitions = [TopicPartition(self._replies, number) for number in range(PARTITIONS)]
        self._consumer.assign(partitions)
        await self._consumer.seek_to_end(*partitions)
        reading = asyncio.create_task(self._read())
        try:
            await self._send(rate, seconds, random.Random(seed))
            async with asyncio.timeout(60):
                while self._sent:
                    await asyncio.sleep(0.05)
        finally:
            reading.cancel()
            await self._consumer.stop()
            await self._producer.stop()
        return self.waits

    async def _send(self, rate: float, seconds: float, chance: random.Random) -> None:
        until = time.monotonic() + seconds
        at = time.monotonic() + 0.5
        while at < until:
            await asyncio.sleep(at - time.monotonic())
            at += chance.expovariate(rate)
            request_id = uuid.uuid4().hex
            user = f"user-{request_id}"
            value = {"request_id": request_id, "user_id": user, "prompt": PROMPT, "max_tokens": 8, "temperature": 0}
            self._sent[request_id] = time.perf_counter()
            await self._producer.send(self._requests, json.dumps(value).encode(), key=user.encode())

    async def _read(self) -> None:
        async for record in self._consumer:
            now = time.perf_counter()
            sent = self._sent.pop(json.loads(record.value).get("request_id"), None)
            if sent is not None:
                self.waits.append(now - sent)


def told(name: str, waits: Sequence[float]) -> tuple[float, float]:
    """Print and return median and p99 in milliseconds."""
    ordered = sorted(waits)
    p50 = statistics.median(ordered) * 1000
    p99 = ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))] * 1000
    print(f"{name:<22} {len(ordered):>5} requests   p50 {p50:7.2f} ms   p99 {p99:7.2f} ms", flush=True)
    return p50, p99


async def bare_engine(model: str, count: int) -> list[float]:
    """Time to the first token of the engine called in this process, one request at a time."""
    from models.checkpoints import load_checkpoint  # noqa: PLC0415 - imports torch
    from models.engine import EngineOptions, TorchEngine  # noqa: PLC0415
    from models.generation import Job, Sampling  # noqa: PLC0415
    from models.prompts import PromptBuilder  # noqa: PLC0415

    checkpoint = load_checkpoint(model)
    engine = TorchEngine(checkpoint, EngineOptions())
    await engine.start()
    prompts = PromptBuilder(checkpoint)
    waits = []
    for number in range(count):
        began = time.perf_counter()
        prompt = prompts.build("", (), PROMPT)
        (stream,) = engine.submit([Job(str(number), prompt.ids, 8, sampling=Sampling(temperature=0))])
        first = None
        async for _ in stream:
            first = first or time.perf_counter()
        waits.append((first or time.perf_counter()) - began)
        await asyncio.sleep(0.05)
    await engine.stop()
    return waits


async def main(options: argparse.Namespace, folder: Path) -> None:
    kafka = KafkaCluster(folder / "kafka")
    kafka.start()
    echo = None
    try:
        settings = Settings(
            _env_file=None,
            broker=kafka.broker_setting,
            data_dir=folder / "data",
            partitions=PARTITIONS,
            embedder="none",
            model=options.model,
            engine=options.engine,
        )
        await create_topics(settings)
        server = settings.cluster.servers[0]
        await create_replies(server)
        echo = subprocess.Popen(
            [sys.executable, "-m", "tests.benchmarks.echo", server, "echo-requests", "echo-replies"],
            stdout=subprocess.PIPE,
        )
        assert echo.stdout is not None
        await asyncio.to_thread(echo.stdout.readline)
        with WorkerProcess(settings, folder / "worker.log") as worker:
            await asyncio.to_thread(worker.wait_owning, PARTITIONS)
            await rounds(server, options)
            worker.stop()
    finally:
        if echo is not None:
            echo.kill()
            echo.wait()
        kafka.kill()


async def create_replies(server: str) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=server)
    await admin.start()
    await admin.create_topics([NewTopic(f"echo-{name}", PARTITIONS, 1) for name in ("requests", "replies")])
    await admin.close()


async def rounds(server: str, options: argparse.Namespace) -> None:
    echoed: list[float] = []
    answered: list[float] = []
    await Probe(server, "echo-requests", "echo-replies").run(options.rate, 3, 0)
    await Probe(server, "requests", "tokens").run(options.rate, 3, 0)
    for number in range(options.rounds):
        echoed += await Probe(server, "echo-requests", "echo-replies").run(options.rate, options.seconds, number)
        answered += await Probe(server, "requests", "tokens").run(options.rate, options.seconds, number)
    echo = told("aiokafka echo", echoed)
    parley = told("Parley, first token", answered)
    if options.engine == "torch":
        engine = told("bare engine", await bare_engine(options.model, 50))
        over = [(whole - own) / floor for whole, own, floor in zip(parley, engine, echo, strict=True)]
        print(f"first token without the engine's own, against the echo: p50 {over[0]:.2f}x, p99 {over[1]:.2f}x")
    print(f"first token against the echo: p50 {parley[0] / echo[0]:.2f}x, p99 {parley[1] / echo[1]:.2f}x")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rate", type=float, default=4.0, help="requests a second")
    parser.add_argument("--seconds", type=float, default=15.0, help="of one round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--model", default="demo")
    parser.add_argument("--engine", default="torch", choices=("torch", "paced"))
    with tempfile.TemporaryDirectory() as name:
        asyncio.run(main(parser.parse_args(), Path(name)))
