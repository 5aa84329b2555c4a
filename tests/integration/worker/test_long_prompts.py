"""While long prompts are read in, the event loop lives: the group hears the worker, and others' tokens go on."""

from __future__ import annotations

import asyncio
import statistics
import time
import urllib.request
from pathlib import Path

import pytest

from tests.faults.worker_process import WorkerProcess
from tests.integration.worker.client import Client
from tests.integration.worker.conftest import StartWorker
from tests.unit.models import tiny

LARGER = {
    "hidden_size": 512,
    "intermediate_size": 1408,
    "num_hidden_layers": 8,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 64,
    "max_position_embeddings": 8192,
}
LONG = "where is my order 4711? " * 250  # some 3,000 tokens: several sessions' worth of computing, for two users
ENDLESS = {"logit_bias": {"0": -100}, "temperature": 0}


@pytest.fixture(scope="module")
def worker(start_worker: StartWorker, tmp_path_factory: pytest.TempPathFactory) -> WorkerProcess:
    folder = tiny.save(tmp_path_factory.mktemp("models") / "larger", **LARGER)
    return start_worker(engine="torch", model=str(folder), session_timeout_s=3.0)


def look(worker: WorkerProcess) -> float:
    """Seconds that the worker's event loop takes for a look at its health."""
    begun = time.perf_counter()
    with urllib.request.urlopen(f"http://127.0.0.1:{worker.web_port}/healthz", timeout=30) as reply:
        reply.read()
    return time.perf_counter() - begun


async def looks(worker: WorkerProcess, seconds: list[float]) -> None:
    while True:
        seconds.append(await asyncio.to_thread(look, worker))
        await asyncio.sleep(0.02)


@pytest.mark.slow
async def test_long_prompts_cost_no_membership_and_stall_nobody(worker: WorkerProcess, client: Client) -> None:
    reader = client.user()
    running = await client.ask(reader, "hello", max_tokens=3000, **ENDLESS)
    await client.begun(reader, running)
    seconds: list[float] = []
    looking = asyncio.ensure_future(looks(worker, seconds))
    users = [client.user() for _ in range(2)]
    begun = time.perf_counter()
    before = len((await client.begun(reader, running)).tokens)
    answers = await asyncio.gather(*(client.asked(user, LONG, max_tokens=2, **ENDLESS) for user in users))
    took = time.perf_counter() - begun
    looking.cancel()
    meanwhile = len((await client.begun(reader, running)).tokens) - before
    await client.cancel(reader, running)

    prompts = [answer.end.usage.prompt_tokens for answer in answers]
    quantiles = statistics.quantiles(seconds, n=100)
    print(
        f"{sum(prompts)} tokens read in within {took:.1f} s, {meanwhile} tokens written meanwhile; the worker's "
        f"event loop: p50 {quantiles[49] * 1e3:.1f} ms, p99 {quantiles[98] * 1e3:.1f} ms, of {len(seconds)}"
    )
    settings = worker.settings
    assert min(prompts) > 2000
    assert meanwhile > 5
    assert took > settings.session_timeout_s, "long enough for a worker that is silent to be given up"
    assert quantiles[98] < settings.session_timeout_s / 4, "which is the interval of heartbeats"
    log = Path(worker.log).read_text()
    assert log.count(": epoch ") == settings.partitions, "taken over once, and never given back"
