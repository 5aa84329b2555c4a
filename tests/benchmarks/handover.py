"""What users notice of a rolling restart: the first tokens of requests that arrive while workers leave and join.

    python -m tests.benchmarks.handover [--index none milvus hanging] [--runs 3] [--rate 4]

Two workers with standbys are restarted in turn with SIGTERM. `--index`: without one, with milvus-lite and minilm, or
with a Milvus that accepts connections and never answers.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import socket
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from app.kafka.topics import create_topics
from app.local.kafka import KafkaCluster
from app.local.milvus import MilvusNode
from app.local.ports import LOOPBACK, free_port
from app.settings import Settings
from tests.benchmarks.fleet.workers import wait_divided
from tests.benchmarks.kafka_client import KafkaClient
from tests.benchmarks.load import Load, Reply
from tests.benchmarks.stats import quantile
from tests.faults.worker_process import WorkerProcess

PARTITIONS = 8
_SECONDS = 75.0
_CALM_S = 12.0
_DOWN_S = 1.0
_LONG_S = 1.0


@contextmanager
def index_of(kind: str, folder: Path) -> Iterator[Mapping[str, Any]]:
    """The settings of an index of that kind, while it is there."""
    if kind == "none":
        yield {"embedder": "none"}
    elif kind == "hanging":
        with socket.create_server((LOOPBACK, 0)) as silent:
            yield {"embedder": "minilm", "milvus_uri": f"http://{LOOPBACK}:{silent.getsockname()[1]}"}
    else:
        milvus = MilvusNode(folder, free_port())
        milvus.start()
        try:
            yield {"embedder": "minilm", "milvus_uri": milvus.uri}
        finally:
            milvus.kill()


def restart_in_turn(workers: list[WorkerProcess]) -> list[float]:
    """Returns how many seconds each worker took to end."""
    took = []
    for worker in workers:
        time.sleep(_CALM_S)
        began = time.monotonic()
        worker.stop()
        took.append(time.monotonic() - began)
        time.sleep(_DOWN_S)
        worker.start()
        worker.wait_joined()
    return took


async def measure(settings: Settings, folder: Path, rate: float) -> tuple[list[Reply], list[float]]:
    await create_topics(settings)
    with ExitStack() as running:
        workers = [
            WorkerProcess(settings.model_copy(update={"data_dir": folder / f"{number}"}), folder / f"{number}.log")
            for number in range(2)
        ]
        for worker in workers:
            worker.start()
            running.callback(worker.kill)
        await asyncio.to_thread(wait_divided, workers, PARTITIONS)
        server = settings.broker.removeprefix("kafka://")
        async with KafkaClient(server, settings.topic("requests"), settings.topic("tokens")) as client:
            load = Load(seconds=_SECONDS, rate=rate, fresh=True, max_tokens=20)
            asking = asyncio.create_task(client.run(load))
            took = await asyncio.to_thread(restart_in_turn, workers)
            return await asking, took


def line_of(replies: list[Reply], took: list[float]) -> str:
    waits = [math.inf if reply.failed or reply.first is None else reply.first for reply in replies]
    pauses = [max(reply.gaps, default=0.0) for reply in replies]
    return (
        f"{len(replies):>9}{quantile(waits, 0.5):>8.2f}{quantile(waits, 0.99):>8.2f}{max(waits):>8.2f}"
        f"{sum(wait > _LONG_S for wait in waits):>8}{max(pauses):>10.2f}   {', '.join(f'{one:.1f}' for one in took)}"
    )


async def main(kinds: list[str], runs: int, rate: float, folder: Path) -> None:
    kafka = KafkaCluster(folder / "kafka")
    kafka.start()
    heads = f"{'requests':>9}{'p50 s':>8}{'p99 s':>8}{'max s':>8}{'> 1 s':>8}{'pause s':>10}"
    print(f"{'index':>8}{'run':>4}{heads}   ended in s", flush=True)
    try:
        for kind in kinds:
            for run in range(1, runs + 1):
                here = folder / f"{kind}{run}"
                here.mkdir()
                with index_of(kind, here / "milvus") as index:
                    settings = Settings(
                        _env_file=None,
                        broker=kafka.broker_setting,
                        topic_prefix=f"{here.name}-",
                        app_id=here.name,
                        milvus_collection=here.name,
                        partitions=PARTITIONS,
                        engine="paced",
                        standby_replicas=1,
                        drain_s=1.0,
                        **index,
                    )
                    replies, took = await measure(settings, here, rate)
                print(f"{kind:>8}{run:>4}{line_of(replies, took)}", flush=True)
    finally:
        kafka.kill()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--index", nargs="+", choices=("none", "milvus", "hanging"), default=["milvus", "hanging"])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--rate", type=float, default=4.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="parley-handover-", ignore_cleanup_errors=True) as name:
        asyncio.run(main(options.index, options.runs, options.rate, Path(name)))
