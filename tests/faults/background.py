"""Background responses whose reader, gateway and worker are all killed in mid-answer, read with OpenAI's own clients.

    python -m tests.faults.background [--responses 50] [--rounds 2]

Each round: the readers leave somewhere in their streams, and their gateway and one of two workers are killed. Then
every reader goes on at another gateway, behind the last sequence number that it has; after the first round that is one
that began in mid-answer. At the end, what a reader has put together is compared with the events as a gateway gives them
that has seen nothing of it, and the words with those of an answer that nothing has disturbed.
Every second reader uses the client for JavaScript, if node is installed; the others use the one for Python.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import random
import statistics
import sys
import tempfile
import time
from asyncio.subprocess import PIPE
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from openai import AsyncOpenAI

from app.kafka.topics import create_topics
from app.local.kafka import KafkaCluster
from app.settings import Settings
from tests.faults.worker_process import WorkerProcess
from tests.integration.gateway.gateway_process import GatewayProcess
from tests.integration.npm import NODE, installed

NPM_READER = Path(__file__).with_name("background_reader.mjs")
NPM_OPENAI = Path(__file__).parents[1] / "integration" / "gateway" / "npm"
USERS = 5
TOKENS = 60
TOKENS_PER_S = 6.0
PARTITIONS = 4
SEED = 4711


@dataclass
class Reader:
    """One response and what its reader has of it. `pauses`: the longest silence after each kill, in seconds."""

    number: int
    name: str = ""
    events: list[dict[str, Any]] = field(default_factory=list)
    pauses: list[float] = field(default_factory=list)

    @property
    def question(self) -> str:
        return f"response {self.number} of many"

    @property
    def user(self) -> dict[str, str]:
        return {"user_id": f"user-{self.number % USERS}"}

    @property
    def has_ended(self) -> bool:
        return (
            bool(self.events) and "usage" in (self.events[-1].get("response") or {}) and self._status != "in_progress"
        )

    @property
    def _status(self) -> str:
        status: str = self.events[-1]["response"]["status"]
        return "in_progress" if status == "queued" else status

    @property
    def text(self) -> str:
        return "".join(one["delta"] for one in self.events if one["type"] == "response.output_text.delta")

    @property
    def uses_npm(self) -> bool:
        return NODE is not None and self.number % 2 == 1

    async def read(self, client: AsyncOpenAI, most: int) -> list[float]:
        """The times of the next events, at most so many. Without an event yet, it creates the response."""
        if self.events:
            after = self.events[-1]["sequence_number"]
            stream = await client.responses.retrieve(
                self.name, stream=True, starting_after=after, extra_query=self.user
            )
        else:
            stream = await client.responses.create(
                model="default",
                input=self.question,
                max_output_tokens=TOKENS,
                background=True,
                stream=True,
                extra_query=self.user,
            )
        times: list[float] = []
        async with stream:
            async for event in stream:
                self.events.append(event.to_dict())
                times.append(time.monotonic())
                if len(times) == most:
                    break
        return times

    def wanted(self, most: int) -> dict[str, Any]:
        """The same for background_reader.mjs."""
        return {
            "number": self.number,
            "question": self.question,
            "max_output_tokens": TOKENS,
            "query": self.user,
            "id": self.name,
            "starting_after": self.events[-1]["sequence_number"] if self.events else None,
            "events": most,
        }


async def read_all(gateway: GatewayProcess, most: Mapping[int, int], readers: Sequence[Reader]) -> list[list[float]]:
    """The times of the events that each reader reads at this gateway, with its client; `most` of them, by number."""
    async with client_of(gateway) as client:
        by_npm = asyncio.create_task(_read_by_npm(gateway, most, [one for one in readers if one.uses_npm]))
        by_python = {one.number: one.read(client, most[one.number]) for one in readers if not one.uses_npm}
        times = dict(zip(by_python, await asyncio.gather(*by_python.values()), strict=True)) | await by_npm
    for one in readers:
        one.name = one.events[0]["response"]["id"]
    return [times[one.number] for one in readers]


async def _read_by_npm(
    gateway: GatewayProcess, most: Mapping[int, int], readers: Sequence[Reader]
) -> dict[int, list[float]]:
    times: dict[int, list[float]] = {one.number: [] for one in readers}
    if not readers:
        return times
    process = await asyncio.create_subprocess_exec(
        str(NODE), str(NPM_READER), gateway.url, f"{NPM_OPENAI}/", stdin=PIPE, stdout=PIPE, limit=1 << 22
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps([one.wanted(most[one.number]) for one in readers]).encode())
    process.stdin.close()
    of_number = {one.number: one for one in readers}
    async for line in process.stdout:
        read = json.loads(line)
        of_number[read["number"]].events.append(read["event"])
        times[read["number"]].append(time.monotonic())
    assert await process.wait() == 0, "the readers that use the client for JavaScript have failed"
    return times


@dataclass(frozen=True, slots=True)
class Outcome:
    """`wrong`: responses whose events, sequence numbers or words are not those of an undisturbed reader."""

    responses: int
    kills: int
    resumed: int
    wrong: list[str]
    pauses: list[float]

    def show(self) -> None:
        ordered = sorted(self.pauses)
        p95 = ordered[int(0.95 * (len(ordered) - 1))]
        clients = "Python" if NODE is None else "Python and JavaScript"
        print(
            f"{self.responses} responses, {self.kills} kills of gateway and worker, {len(self.wrong)} wrong"
            f" (clients for {clients})",
            flush=True,
        )
        print(
            f"{self.resumed} streams were resumed; the longest silence of each: p50 {statistics.median(ordered):.1f} s,"
            f" p95 {p95:.1f} s, max {ordered[-1]:.1f} s",
            flush=True,
        )
        for line in self.wrong:
            print(f"  {line}", flush=True)


class Place:
    """Two workers and two gateways, of which one is new after each kill."""

    def __init__(self, settings: Settings, folder: Path) -> None:
        self._settings = settings
        self._folder = folder
        self._workers: list[WorkerProcess] = []
        self._gateways: list[GatewayProcess] = []
        self._killed = 0

    def start(self) -> None:
        for _ in range(2):
            self._start_worker().wait_assigned()
            self.new_gateway()

    def _start_worker(self) -> WorkerProcess:
        number = len(self._workers)
        own = self._settings.model_copy(update={"data_dir": self._folder / f"data-{number}"})
        worker = WorkerProcess(own, self._folder / f"worker-{number}.log").start()
        self._workers.append(worker)
        return worker

    def new_gateway(self) -> GatewayProcess:
        gateway = GatewayProcess(self._settings, self._folder / f"gateway-{len(self._gateways)}.log").start()
        self._gateways.append(gateway)
        return gateway

    @property
    def gateway(self) -> GatewayProcess:
        """The oldest one that is left."""
        return self._gateways[self._killed]

    def kill(self) -> None:
        """Kill the older gateway and the older worker; another worker begins."""
        self.gateway.kill()
        self._killed += 1
        self._workers[-2].kill()
        self._start_worker()

    def close(self) -> None:
        for process in (*self._gateways, *self._workers):
            process.kill()


def client_of(gateway: GatewayProcess) -> AsyncOpenAI:
    return AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key="any", timeout=300, max_retries=5)


async def settings_of(kafka: KafkaCluster, **values: Any) -> Settings:
    settings = Settings(
        _env_file=None,
        broker=kafka.broker_setting,
        engine="paced",
        embedder="none",
        partitions=PARTITIONS,
        paced_tokens_per_s=TOKENS_PER_S,
        session_timeout_s=3.0,
        **values,
    )
    await create_topics(settings)
    return settings


async def run(settings: Settings, folder: Path, responses: int, rounds: int) -> Outcome:
    draw = random.Random(SEED)
    readers = [Reader(number) for number in range(responses)]
    place = Place(settings, folder)
    try:
        if NODE is not None:
            await asyncio.to_thread(installed, NPM_OPENAI)
        await asyncio.to_thread(place.start)
        await read_all(place.gateway, {one.number: draw.randint(1, 20) for one in readers}, readers)
        for left in reversed(range(rounds)):
            killed_at = time.monotonic()
            await asyncio.to_thread(place.kill)
            fresh = asyncio.create_task(asyncio.to_thread(place.new_gateway))
            most = draw.randint(3, 12) if left else sys.maxsize
            going_on = [one for one in readers if not one.has_ended]
            read = await read_all(place.gateway, {one.number: most for one in going_on}, going_on)
            for reader, times in zip(going_on, read, strict=True):
                reader.pauses.append(max(later - one for one, later in pairwise([killed_at, *times])))
            await fresh
        async with client_of(fresh.result()) as client:
            wrong = [line for line in await asyncio.gather(*(_judged(one, client) for one in readers)) if line]
    finally:
        place.close()
    pauses = [pause for reader in readers for pause in reader.pauses]
    return Outcome(responses, rounds, len(pauses), wrong, pauses)


async def _judged(reader: Reader, client: AsyncOpenAI) -> str | None:
    """What is wrong with it; None if nothing is."""
    stream = await client.responses.retrieve(reader.name, stream=True, extra_query=reader.user)
    events = [event.to_dict() async for event in stream]
    if [one["sequence_number"] for one in events] != list(range(len(events))):
        return f"{reader.name}: the sequence numbers have a gap"
    if events != reader.events:
        return f"{reader.name}: {len(reader.events)} events were read, and others are there: {len(events)}"
    undisturbed = await client.responses.create(
        model="default", input=reader.question, max_output_tokens=TOKENS, extra_query=reader.user
    )
    kept = await client.responses.retrieve(reader.name, extra_query=reader.user)
    if not (reader.text == kept.output_text == undisturbed.output_text):
        return f"{reader.name}: {reader.text!r} is not {undisturbed.output_text!r}"
    return None


async def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--responses", type=int, default=50)
    options.add_argument("--rounds", type=int, default=2)
    given = options.parse_args()
    logging.basicConfig(level=logging.WARNING)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        kafka = KafkaCluster(folder / "kafka")
        try:
            kafka.start()
            outcome = await run(await settings_of(kafka), folder, given.responses, given.rounds)
        finally:
            kafka.kill()
    outcome.show()
    return 1 if outcome.wrong else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
