"""What hostile callers cost everyone else: one gateway and one worker, under each attack in turn.

    python -m tests.benchmarks.attacks [--seconds 10] [--only heads,scans] [--largest]

Ten quiet users send requests at a fixed rate all the time and measure their first token. Each attack comes from one
user or from callers without a key, and sends many requests of a kind that a security review found to be expensive. The
attacker is a separate process with a low priority: a real attacker would not use the service's cores. For each attack,
the table has the quiet users' first token during the attack and before it, how many of their requests failed, the
replies that the attacker got, the memory of gateway and worker, and the longest wait for a health check, which is an
upper bound of the longest block of their event loops. With `--largest` the requests are the largest legitimate ones.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psutil
import websockets

from app.kafka.topics import create_topics
from app.local.kafka import KafkaCluster
from app.settings import Settings
from tests.benchmarks.largest import LARGEST
from tests.faults.worker_process import WorkerProcess
from tests.fuzz.loop_probe import LoopProbe
from tests.fuzz.run import policy_in
from tests.integration.gateway.gateway_process import GatewayProcess

QUIET_USERS = 10
PAUSE_S = 0.5
ATTACKER_KEY = "key-of-mallory-0123"
MALLORY = {"Authorization": f"Bearer {ATTACKER_KEY}"}
AT_ONCE = 200
BOMB = json.dumps({"prompt": "x", "metadata": {"a": [{}] * 340_000}}, separators=(",", ":")).encode()
GRAMMAR = {"type": "json_schema", "json_schema": {"schema": {"type": "integer", "multipleOf": 999_983}}}


@dataclass
class Attacker:
    """One hostile process, and the replies that it got."""

    url: str
    replies: Counter[str] = field(default_factory=Counter)

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])


@dataclass
class Bench:
    gateway: GatewayProcess
    worker: WorkerProcess
    first_tokens: list[float] = field(default_factory=list)
    failures: int = 0

    def memory(self) -> str:
        """MiB of both."""
        return ", ".join(
            f"{psutil.Process(one.pid).memory_info().rss / 2**20:.0f}" for one in (self.gateway, self.worker)
        )

    async def quiet_user(self, number: int, http: httpx.AsyncClient) -> None:
        headers = {"Authorization": f"Bearer key-of-quiet-{number:04}"}
        await asyncio.sleep(PAUSE_S * number / QUIET_USERS)
        while True:
            began = time.monotonic()
            try:
                async with asyncio.timeout(20):
                    await self._ask(http, headers, began)
            except (httpx.HTTPError, TimeoutError, KeyError):
                self.failures += 1
            await asyncio.sleep(max(0.0, PAUSE_S - (time.monotonic() - began)))

    async def _ask(self, http: httpx.AsyncClient, headers: dict[str, str], began: float) -> None:
        body = {"prompt": "a quiet question", "max_tokens": 3}
        asked = (await http.post("/v1/requests", json=body, headers=headers)).json()
        async with http.stream("GET", asked["events"], headers=headers) as stream:
            async for line in stream.aiter_lines():
                if line.startswith("data:") and '"token"' in line:
                    self.first_tokens.append(time.monotonic() - began)
                    return
        self.failures += 1


Attack = Callable[[Attacker, httpx.AsyncClient], Awaitable[None]]


async def _status(by: Attacker, call: Awaitable[httpx.Response]) -> None:
    try:
        by.replies[str((await call).status_code)] += 1
    except httpx.HTTPError as error:
        by.replies[type(error).__name__] += 1


async def _flood(by: Attacker, call: Callable[[], Awaitable[httpx.Response]]) -> None:
    """As many at once as a user may think of, each again when it is answered."""

    async def again() -> None:
        while True:
            await _status(by, call())

    await asyncio.gather(*(again() for _ in range(AT_ONCE)))


async def slow_connections(by: Attacker, _http: httpx.AsyncClient) -> None:
    """2,000 connections whose heads never end."""

    async def slow() -> None:
        while True:
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", by.port)
                writer.write(b"GET / HTTP/1.1\r\n")
                for number in range(1000):
                    writer.write(b"X-%d: y\r\n" % number)
                    await writer.drain()
                    with suppress(TimeoutError):
                        async with asyncio.timeout(1):
                            reply = await reader.read(100)
                            by.replies[reply[9:12].decode() or "closed"] += 1
                            break
                writer.close()
            except OSError as error:
                by.replies[type(error).__name__] += 1
            await asyncio.sleep(0.2)

    await asyncio.gather(*(slow() for _ in range(2000)))


async def large_heads(by: Attacker, _http: httpx.AsyncClient) -> None:
    async def large() -> None:
        while True:
            with suppress(OSError):
                reader, writer = await asyncio.open_connection("127.0.0.1", by.port)
                writer.write(b"GET /v1/me HTTP/1.1\r\nX: ")
                with suppress(OSError):
                    for _ in range(128):
                        writer.write(b"a" * 65536)
                        await writer.drain()
                    writer.write(b"\r\n\r\n")
                reply = await reader.read(100)
                by.replies[reply[9:12].decode() or "closed"] += 1
                writer.close()
            await asyncio.sleep(0.05)

    await asyncio.gather(*(large() for _ in range(20)))


async def metadata_bombs(by: Attacker, http: httpx.AsyncClient) -> None:
    headers = {**MALLORY, "content-type": "application/json"}
    await _flood(by, lambda: http.post("/v1/requests", content=BOMB, headers=headers))


async def conversations(by: Attacker, http: httpx.AsyncClient) -> None:
    await _flood(by, lambda: http.get("/v1/conversations", headers=MALLORY))


async def unknown_answers(by: Attacker, http: httpx.AsyncClient) -> None:
    number = iter(range(10**9))
    await _flood(by, lambda: http.get(f"/v1/requests/unknown-{next(number)}", headers=MALLORY))


async def erasures(by: Attacker, http: httpx.AsyncClient) -> None:
    await _flood(by, lambda: http.delete("/v1/users/mallory", headers=MALLORY))


async def grammars(by: Attacker, http: httpx.AsyncClient) -> None:
    body = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 4, "response_format": GRAMMAR, "n": 8}
    await _flood(by, lambda: http.post("/v1/chat/completions", json=body, headers=MALLORY))


async def many_choices(by: Attacker, http: httpx.AsyncClient) -> None:
    body = {"messages": [{"role": "user", "content": "x" * 60_000}], "n": 128, "max_tokens": 1}
    await _flood(by, lambda: http.post("/v1/chat/completions", json=body, headers=MALLORY))


async def sockets(by: Attacker, _http: httpx.AsyncClient) -> None:
    async def hold() -> None:
        while True:
            try:
                url = by.url.replace("http", "ws") + "/v1/ws"
                async with websockets.connect(url, additional_headers=MALLORY, open_timeout=20) as socket:
                    by.replies["opened"] += 1
                    async for _ in socket:
                        pass
            except (OSError, websockets.WebSocketException, TimeoutError) as error:
                by.replies[type(error).__name__] += 1
            await asyncio.sleep(0.2)

    await asyncio.gather(*(hold() for _ in range(1000)))


def _largest(name: str) -> Attack:
    """The largest legitimate request of a kind, again and again."""

    async def send(by: Attacker, http: httpx.AsyncClient) -> None:
        while True:
            await _status(by, http.post("/v1/chat/completions", json=LARGEST[name], headers=MALLORY))

    send.__name__ = name
    return send


ATTACKS: dict[str, Attack] = {
    attack.__name__: attack
    for attack in (
        slow_connections,
        large_heads,
        metadata_bombs,
        conversations,
        unknown_answers,
        erasures,
        grammars,
        many_choices,
        sockets,
        *map(_largest, LARGEST),
    )
}


@asynccontextmanager
async def probed(bench: Bench) -> AsyncIterator[list[LoopProbe]]:
    ports = bench.gateway.url, f"http://127.0.0.1:{bench.worker.web_port}"
    probes = [LoopProbe(f"{url}/healthz") for url in ports]
    tasks = [asyncio.create_task(probe.run()) for probe in probes]
    try:
        yield probes
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _waits(probes: list[LoopProbe]) -> str:
    """The longest waits since the last call."""
    shown = ", ".join(f"{1000 * probe.longest_s:.0f}" for probe in probes)
    for probe in probes:
        probe.longest_s = 0.0
    return shown


async def measure(bench: Bench, seconds: float, names: list[str]) -> None:
    async with httpx.AsyncClient(base_url=bench.gateway.url, timeout=30) as http:
        users = [asyncio.create_task(bench.quiet_user(number, http)) for number in range(QUIET_USERS)]
        await asyncio.sleep(5)
        print(
            "| attack | quiet users' first token p50, p99 (ms) | before | p99 ratio | failed | replies | MiB "
            "| longest wait for the loop of gateway, worker (ms) | before |"
        )
        print("|---|---|---|---|---|---|---|---|---|")
        for name in names:
            async with probed(bench) as probes:
                calm, _ = await _phase(bench, seconds, None)
                waits_before = _waits(probes)
                under, replies = await _phase(bench, seconds, name)
                waits = _waits(probes)
            print(
                f"| {name} | {_shown(under)} | {_shown(calm)} | {_p99(under) / _p99(calm):.2f} | {bench.failures} "
                f"| {replies} | {bench.memory()} | {waits} | {waits_before} |",
                flush=True,
            )
            await asyncio.sleep(5)
        for user in users:
            user.cancel()
        await asyncio.gather(*users, return_exceptions=True)


async def _phase(bench: Bench, seconds: float, attack: str | None) -> tuple[list[float], str]:
    """The first tokens of the quiet users meanwhile, and what the attacker got."""
    if attack is None:
        bench.first_tokens, bench.failures = [], 0
        await asyncio.sleep(seconds)
        return bench.first_tokens, ""
    command = [sys.executable, "-m", "tests.benchmarks.attacks", "--attack", attack, "--url", bench.gateway.url]
    process = await asyncio.create_subprocess_exec(*command, "--seconds", str(seconds), stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    await process.stdout.readline()  # it has begun
    bench.first_tokens, bench.failures = [], 0
    replies = (await process.stdout.read()).decode().strip()
    await process.wait()
    return bench.first_tokens, replies


async def run_attack(name: str, url: str, seconds: float) -> None:
    """The attacker's process."""
    os.nice(10)
    by = Attacker(url)
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    async with httpx.AsyncClient(base_url=url, timeout=30, limits=limits) as http:
        print("begun", flush=True)
        attacking = asyncio.ensure_future(ATTACKS[name](by, http))
        await asyncio.wait({attacking}, timeout=seconds)
        attacking.cancel()
        await asyncio.gather(attacking, return_exceptions=True)
    print(", ".join(f"{status}: {count}" for status, count in by.replies.most_common(5)))


def _p99(values: list[float]) -> float:
    return statistics.quantiles(values, n=100)[98] if len(values) > 1 else float("inf")


def _shown(values: list[float]) -> str:
    return f"{1000 * statistics.median(values):.0f}, {1000 * _p99(values):.0f}" if values else "none"


def _settings(cluster: KafkaCluster, folder: Path, **values: Any) -> Settings:
    keys = [f"{ATTACKER_KEY}=mallory", *(f"key-of-quiet-{number:04}=quiet{number}" for number in range(QUIET_USERS))]
    defaults: dict[str, Any] = {
        "broker": cluster.broker_setting,
        "data_dir": folder / "data",
        "partitions": 4,
        "embedder": "none",
        "gateway_api_keys": ",".join(keys),
    }
    settings = Settings(_env_file=None, **{**defaults, **values})
    asyncio.run(create_topics(settings))
    return settings


def _for_largest(folder: Path) -> dict[str, Any]:
    """An engine that reads prompts of a megabyte, with a guard and a cache, and without limits on one caller."""
    limits = {"max_prompt_bytes": 1_000_000, "gateway_requests_per_min": 0, "gateway_tokens_per_min": 0}
    return {"engine": "paced", "paced_tokens_per_s": 1000.0, "policy": policy_in(folder), **limits}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=10.0, help="of each attack, and of the calm before it")
    parser.add_argument("--attack", help=argparse.SUPPRESS)
    parser.add_argument("--url", default="", help=argparse.SUPPRESS)
    parser.add_argument("--only", default="", help="attacks, with `,`")
    parser.add_argument("--largest", action="store_true", help="only the largest legitimate requests")
    parser.add_argument("--engine", default="torch", help="`paced` leaves out what a model costs")
    options = parser.parse_args()
    if options.attack:
        asyncio.run(run_attack(options.attack, options.url, options.seconds))
        return
    if options.largest:
        options.only = ",".join(LARGEST)
    names = [name for name in ATTACKS if not options.only or any(one in name for one in options.only.split(","))]
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        cluster = KafkaCluster(folder / "kafka", 1)
        cluster.start()
        try:
            values = _for_largest(folder) if options.largest else {"engine": options.engine}
            settings = _settings(cluster, folder, **values)
            with (
                WorkerProcess(settings, folder / "worker.log") as worker,
                GatewayProcess(settings, folder / "gateway.log") as gateway,
            ):
                worker.wait_owning(settings.partitions)
                asyncio.run(measure(Bench(gateway, worker), options.seconds, names))
                for log in ("worker", "gateway"):
                    text = (folder / f"{log}.log").read_text()
                    print(f"{log}: {text.count('Traceback')} tracebacks")
                    if "Traceback" in text:
                        print(text[max(0, text.index("Traceback") - 300) :][:3000])
        finally:
            cluster.kill()


if __name__ == "__main__":
    main()
