"""Lists right after an answer, under load, at two gateways: does each have the turn that its caller was told?

python -m tests.integration.gateway.lists_after_answers --lists 2000
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from collections import Counter
from collections.abc import Sequence
from itertools import count
from pathlib import Path

import httpx

from app.kafka.topics import create_topics
from app.local.kafka import KafkaCluster
from app.settings import Settings
from tests.faults.worker_process import WorkerProcess
from tests.integration.gateway.gateway_process import GatewayProcess

KINDS = ("conversation", "items", "conversations")
_CALLERS = 16


async def lists_after_answers(urls: Sequence[str], lists: int, callers: int = _CALLERS) -> Counter[str]:
    """How many lists of each kind were read, and how many lacked the turn (`... without its turn`). Each caller asks
    one gateway and lists at another.
    """
    counts: Counter[str] = Counter()
    numbers = count()

    async def call(caller: int) -> None:
        async with httpx.AsyncClient(params={"user_id": f"caller-{caller}"}, timeout=120) as http:
            while (number := next(numbers)) < lists:
                talk, kind = f"talk-{number}", KINDS[number % len(KINDS)]
                asked = {"input": "Hello!", "conversation": talk, "max_output_tokens": 3}
                reply = await http.post(f"{urls[caller % len(urls)]}/v1/responses", json=asked)
                reply.raise_for_status()
                found = await _list(http, urls[(caller + 1) % len(urls)], kind, talk)
                counts[kind] += 1
                counts[f"{kind} without its turn"] += not found

    await asyncio.gather(*map(call, range(callers)))
    return +counts


async def _list(http: httpx.AsyncClient, url: str, kind: str, talk: str) -> bool:
    if kind == "conversations":
        listed = (await http.get(f"{url}/v1/conversations")).json()["conversations"]
        return any(one["conversation_id"] == talk for one in listed)
    path, items = ("", "turns") if kind == "conversation" else ("/items", "data")
    return bool((await http.get(f"{url}/v1/conversations/{talk}{path}")).json()[items])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--lists", type=int, default=2000)
    wanted = parser.parse_args().lists
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        kafka = KafkaCluster(folder / "kafka")
        kafka.start()
        try:
            settings = Settings(
                _env_file=None,
                broker=kafka.broker_setting,
                data_dir=folder / "data",
                partitions=4,
                engine="paced",
                paced_tokens_per_s=1000.0,
                embedder="none",
            )
            asyncio.run(create_topics(settings))
            with WorkerProcess(settings, folder / "worker.log") as worker:
                worker.wait_owning(settings.partitions)
                gateways = [GatewayProcess(settings, folder / f"{n}.log", is_shared=True).start() for n in range(2)]
                try:
                    print(dict(asyncio.run(lists_after_answers([one.url for one in gateways], wanted))))
                finally:
                    for one in gateways:
                        one.kill()
        finally:
            kafka.kill()


if __name__ == "__main__":
    main()
