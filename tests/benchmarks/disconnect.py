"""How long an answer goes on after its client has left: `python -m tests.benchmarks.disconnect`.

Measured from the moment at which the client closes its connection, in the middle of a stream, to the first look at the
worker's metrics that shows no running sequence; a look takes some milliseconds.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import httpx

from app.kafka.topics import create_topics
from app.local.kafka import KafkaCluster
from app.settings import Settings
from tests.faults.worker_process import WorkerProcess
from tests.integration.gateway.gateway_process import GatewayProcess

BODY = {"messages": [{"role": "user", "content": "Hello"}], "ignore_eos": True, "max_tokens": 1000, "stream": True}
RUNNING = "parley:num_requests_running"


async def running(http: httpx.AsyncClient, worker: WorkerProcess) -> float:
    text = (await http.get(f"http://127.0.0.1:{worker.web_port}/metrics")).text
    return sum(float(line.split()[-1]) for line in text.splitlines() if line.startswith(RUNNING))


async def leave(http: httpx.AsyncClient, gateway: GatewayProcess, worker: WorkerProcess) -> float:
    """Seconds until the answer of a client that has left no longer runs."""
    async with http.stream("POST", f"{gateway.url}/v1/chat/completions", json=BODY) as reply:
        chunks = 0
        async for _ in reply.aiter_lines():
            chunks += 1
            if chunks == 20:
                break
        assert await running(http, worker) == 1
        left_at = time.monotonic()
    while await running(http, worker):
        await asyncio.sleep(0.002)
    return time.monotonic() - left_at


async def measure(gateway: GatewayProcess, worker: WorkerProcess, times: int) -> list[float]:
    async with httpx.AsyncClient(timeout=60) as http:
        return [await leave(http, gateway, worker) for _ in range(times)]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.disconnect")
    parser.add_argument("--times", type=int, default=50, help="clients that leave (default: %(default)s)")
    times = parser.parse_args().times
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        kafka = KafkaCluster(folder / "kafka")
        stack.callback(kafka.kill)
        kafka.start()
        settings = Settings(
            _env_file=None, broker=kafka.broker_setting, data_dir=folder / "data", partitions=4, embedder="none"
        )
        asyncio.run(create_topics(settings))
        worker = stack.enter_context(WorkerProcess(settings, folder / "worker.log"))
        gateway = stack.enter_context(GatewayProcess(settings, folder / "gateway.log"))
        worker.wait_owning(settings.partitions)
        found = sorted(asyncio.run(measure(gateway, worker, times)))
    p50, p95 = statistics.median(found), found[int(0.95 * (len(found) - 1))]
    print(f"{times} clients left: p50 {p50 * 1000:.0f} ms, p95 {p95 * 1000:.0f} ms, max {found[-1] * 1000:.0f} ms")


if __name__ == "__main__":
    main()
