"""One run: rubbish at a few targets at once, and every now and then a good request, which has to be answered."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psutil

from app.kafka.topics import create_topics
from app.local.kafka import KafkaCluster
from app.settings import Settings
from tests.faults.worker_process import WorkerProcess
from tests.fuzz.loop_probe import LoopProbe
from tests.fuzz.targets import PATIENCE_S, Targets
from tests.integration.gateway.gateway_process import GatewayProcess

AT_ONCE = 4
SAMPLES = 15
ANSWER_S = 60.0


@dataclass
class Found:
    """`memory`: MiB of gateway and worker, at even times."""

    replies: Counter[str]
    faults: list[str] = field(default_factory=list)
    memory: list[tuple[float, float]] = field(default_factory=list)
    longest_s: tuple[float, float] = (0.0, 0.0)
    """The longest block of the loop of gateway and worker, with the wait for a processor."""


POLICY = """
[guard]
pii = "mask"
prompt = { profanity = "flag", injection = "flag" }
answer = { profanity = "block" }
[cache]
ttl_s = 60
"""


def policy_in(folder: Path) -> Path:
    """A policy with everything that reads requests and answers."""
    policy = folder / "policy.toml"
    policy.write_text(POLICY)
    return policy


def settings_for(cluster: KafkaCluster, folder: Path, **values: Any) -> Settings:
    defaults: dict[str, Any] = {
        "broker": cluster.broker_setting,
        "data_dir": folder / "data",
        "partitions": 4,
        "embedder": "none",
        "gateway_requests_per_min": 0,
        "gateway_wait_s": 0.2,
        "gateway_user_header": "X-User",
        "policy": policy_in(folder),
    }
    settings = Settings(_env_file=None, **{**defaults, **values})
    asyncio.run(create_topics(settings))
    return settings


async def fuzz(worker: WorkerProcess, gateway: GatewayProcess, seconds: float, seed: int) -> Found:
    targets = Targets(gateway.url, worker.settings, seed)
    await targets.start()
    found = Found(targets.replies)
    until = time.monotonic() + seconds
    probes = [LoopProbe(f"{gateway.url}/healthz"), LoopProbe(f"http://127.0.0.1:{worker.web_port}/healthz")]
    probing = [asyncio.create_task(probe.run()) for probe in probes]
    try:
        sending = [asyncio.create_task(_send(targets, found, until, first)) for first in range(AT_ONCE)]
        for _ in range(SAMPLES):
            await asyncio.sleep(seconds / SAMPLES)
            found.memory.append(_memory(worker, gateway))
            found.faults += await _probe(gateway)
        await asyncio.gather(*sending)
        found.faults += await _probe(gateway)
    finally:
        for task in probing:
            task.cancel()
        lost = [
            error for error in await asyncio.gather(*probing, return_exceptions=True) if isinstance(error, Exception)
        ]
        found.faults += [f"a health check failed: {error!r}" for error in lost]
        found.longest_s = (probes[0].longest_s, probes[1].longest_s)
        await targets.stop()
    for log in (worker.log, gateway.log):
        text = log.read_text(errors="replace")
        if "Traceback" in text:
            found.faults.append(f"{log.name}: {text[text.index('Traceback') :][:2000]}")
    if worker.exit_code is not None:
        found.faults.append(f"the worker ended:\n{worker.tail()}")
    return found


async def _send(targets: Targets, found: Found, until: float, first: int) -> None:
    number = first
    while time.monotonic() < until:
        try:
            async with asyncio.timeout(PATIENCE_S):
                await targets.all[number % len(targets.all)]()
        except TimeoutError:  # a request for very many tokens is a good one
            targets.replies["unfinished"] += 1
        except AssertionError as error:
            found.faults.append(str(error))
        except httpx.HTTPError as error:
            found.faults.append(f"no reply: {error!r}")
        number += 1


async def _probe(gateway: GatewayProcess) -> list[str]:
    """A good request among the rubbish; what is wrong with its answer."""
    body = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2}
    async with httpx.AsyncClient(base_url=gateway.url, timeout=ANSWER_S) as http:
        try:
            reply = await http.post("/v1/chat/completions", json=body, headers={"X-User": "probe"})
        except httpx.HTTPError as error:
            return [f"a good request was not answered: {error!r}"]
    return [] if reply.status_code == 200 else [f"a good request got {reply.status_code}: {reply.text[:300]}"]


def _memory(worker: WorkerProcess, gateway: GatewayProcess) -> tuple[float, float]:
    of_gateway, of_worker = (psutil.Process(one.pid).memory_info().rss / 2**20 for one in (gateway, worker))
    return of_gateway, of_worker
