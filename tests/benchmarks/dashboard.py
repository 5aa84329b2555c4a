"""The dashboard of a short run, as a picture, without Prometheus and Grafana.

    python -m tests.benchmarks.dashboard dashboard.png --seconds 40

A worker with the demo model and a gateway are asked in waves and scraped once a second; then the dashboard's own
expressions are evaluated over what was scraped (promql.py) and drawn.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import random
import signal
import tempfile
import time
import urllib.request
import uuid
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaProducer

from app.kafka.topics import create_topics
from app.local.kafka import KafkaCluster
from app.settings import Settings
from tests.benchmarks.promql import Scrape, Vector, evaluate, scraped
from tests.faults.worker_process import WorkerProcess
from tests.integration.gateway.gateway_process import GatewayProcess

DASHBOARD = Path(__file__).parents[2] / "deploy" / "grafana" / "parley.json"
PARTITIONS = 4
RANGE_S = 10
COLUMNS = 4
PROMPTS = ("Hi, I am Nina. Where is my order 4711?", "Can I send it back?", "What is my name?", "Thank you!")


async def load(settings: Settings, seconds: float) -> None:
    """Requests of a few tenants, in waves, and now and then a record that is none."""
    producer = AIOKafkaProducer(**settings.cluster.options())
    await producer.start()
    began, number = time.monotonic(), 0
    while (now := time.monotonic() - began) < seconds:
        user = f"user-{random.randrange(24)}"
        tenant = random.choice(("acme", "globex", "initech"))
        record = {"request_id": uuid.uuid4().hex, "user_id": user, "prompt": random.choice(PROMPTS), "max_tokens": 40}
        value = json.dumps(record | {"tenant": tenant}).encode() if number % 50 else b"no request"
        await producer.send(settings.topic("requests"), value, key=user.encode())
        number += 1
        await asyncio.sleep(0.05 + 0.3 * (1 + math.cos(now / 4)) / 2)
    await producer.stop()


async def watch(addresses: Sequence[str], seconds: float) -> list[Scrape]:
    scrapes: list[Scrape] = []
    began = time.monotonic()
    while time.monotonic() - began < seconds:
        texts = {at: await asyncio.to_thread(_get, f"{at}/metrics") for at in addresses}
        scrapes.append(scraped(time.time(), texts))
        await asyncio.sleep(1.0)
    return scrapes


def _get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=10) as response:
        return str(response.read().decode())


def draw(scrapes: Sequence[Scrape], out: Path) -> list[str]:
    """Draw every panel; returns the titles of those that show nothing."""
    import matplotlib.pyplot as plt  # noqa: PLC0415 - slow to import

    panels = [panel for panel in json.loads(DASHBOARD.read_text())["panels"] if panel["type"] != "row"]
    rows = -(-len(panels) // COLUMNS)
    figure, axes = plt.subplots(rows, COLUMNS, figsize=(6 * COLUMNS, 2.6 * rows))
    empty = [panel["title"] for panel, at in zip(panels, axes.flat, strict=False) if not _draw(panel, at, scrapes)]
    for at in axes.flat[len(panels) :]:
        at.axis("off")
    figure.tight_layout()
    figure.savefig(out, dpi=60)
    return empty


def _draw(panel: dict[str, Any], axis: Any, scrapes: Sequence[Scrape]) -> bool:
    lines: dict[str, list[tuple[float, float]]] = {}
    for target in panel["targets"]:
        expression = target["expr"].replace("$__rate_interval", f"{RANGE_S}s")
        expression = expression.replace("$job", ".*").replace("$instance", ".*")
        for count in range(RANGE_S, len(scrapes) + 1):
            found: Vector = evaluate(expression, scrapes[:count])
            for labels, value in found.items():
                name = target["legendFormat"]
                for label, shown in labels:
                    name = name.replace("{{" + label + "}}", shown)
                lines.setdefault(name, []).append((scrapes[count - 1].at - scrapes[0].at, value))
    for name, points in lines.items():
        axis.plot(*zip(*points, strict=True), label=name, linewidth=1)
    axis.set_title(f"{panel['title']} ({panel['fieldConfig']['defaults']['unit']})", fontsize=9)
    axis.tick_params(labelsize=7)
    axis.set_ylim(bottom=0)
    if lines and len(lines) < 9:
        axis.legend(fontsize=6, loc="upper left")
    return bool(lines)


async def _run(settings: Settings, addresses: Sequence[str], seconds: float) -> list[Scrape]:
    _, scrapes = await asyncio.gather(load(settings, seconds), watch(addresses, seconds + 3))
    return scrapes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seconds", type=float, default=40)
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # its servers end with it
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        kafka = KafkaCluster(folder / "kafka")
        stack.callback(kafka.kill)
        kafka.start()
        base = {"broker": kafka.broker_setting, "data_dir": folder / "data", "partitions": PARTITIONS}
        settings = Settings(_env_file=None, embedder="none", threads=1, sweep_interval_s=5, **base)
        asyncio.run(create_topics(settings))
        worker = stack.enter_context(WorkerProcess(settings, folder / "worker.log"))
        gateway = stack.enter_context(GatewayProcess(settings, folder / "gateway.log"))
        worker.wait_owning(PARTITIONS)
        addresses = [f"http://127.0.0.1:{worker.web_port}", gateway.url]
        scrapes = asyncio.run(_run(settings, addresses, options.seconds))
    print("nothing to show:", ", ".join(draw(scrapes, options.out)) or "none")


if __name__ == "__main__":
    main()
