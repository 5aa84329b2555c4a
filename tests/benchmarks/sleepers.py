"""What answers that sleep cost a real worker: `python -m tests.benchmarks.sleepers --answers 10000 --rows 100000`.

Answers of 20 users, which wait for 30 days, fall asleep; one of the users is erased. Before that, a worker answers as
many plain requests: what its memory grows by is not for sleep. Then rows of as many more as
`--rows` are written to the changelog, and workers start and take over with them: with a data folder and without, and
with a standby. The partition is one, so all of it is one worker's.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from app.delivery.commits.changelog import changelog_topic
from app.kafka.topics import create_topics
from app.local.kafka import KafkaCluster
from app.settings import Settings
from tables.asleep import Head, KeptAnswer, Part, Sleep, Sleeper, row_of
from tables.records import Table
from tables.tool_calls import ToolRounds
from tests.faults.load import TOOLS
from tests.faults.records import Fetched
from tests.faults.worker_process import WorkerProcess

USERS = 20
DAYS_MS = 30 * 86_400_000
_STEPS = 10
_POLICY = "[waits]\npark_after_s = 0.05\nper_user = 1000\nper_tenant = 1000000\nper_partition = 1000000\n"
_TEXT = "x" * 1500


def memory_mb(worker: WorkerProcess) -> float:
    status = Path(f"/proc/{worker.pid}/status").read_text()
    return int(re.findall(r"VmRSS:\s+(\d+)", status)[0]) / 1024


class States:
    """The newest record of each answer on `waits`, as it comes."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.newest: dict[bytes, bytes | None] = {}

    async def until(self, count: int, is_it: str) -> float:
        """Seconds until so many are in this state; a tombstone has none."""
        began, topic = time.monotonic(), TopicPartition(self._settings.topic("waits"), 0)
        async with AIOKafkaConsumer(**self._settings.cluster.options(), isolation_level="read_committed") as consumer:
            consumer.assign([topic])
            await consumer.seek_to_beginning(topic)
            while sum(self._is(one, is_it) for one in self.newest.values()) < count:
                for records in (await consumer.getmany(timeout_ms=100)).values():
                    self._read(records)
        return time.monotonic() - began

    def _read(self, records: list[Fetched]) -> None:
        self.newest |= {one.key or b"": one.value for one in records}

    @staticmethod
    def _is(value: bytes | None, state: str) -> bool:
        return (not state) if value is None else json.loads(value)["state"] == state


async def send(settings: Settings, topic: str, rows: Iterator[tuple[bytes, bytes]]) -> None:
    async with AIOKafkaProducer(**settings.cluster.options(), linger_ms=20, max_batch_size=1 << 20) as producer:
        sent = [await producer.send(topic, value, key=key, partition=0) for key, value in rows]
        await asyncio.gather(*sent)


def questions(first: int, count: int, *, sleep: bool = True) -> Iterator[tuple[bytes, bytes]]:
    for number in range(first, first + count):
        user = f"u{number % USERS}"
        said = {"request_id": f"r{number}", "user_id": user, "prompt": "begin", "conversation_id": f"c{number}"}
        asked = {**said, "max_tokens": 2}
        if sleep:
            asked |= {"tools": TOOLS, "tool_mode": "kafka", "tool_timeout_ms": DAYS_MS}
        yield user.encode(), json.dumps(asked).encode()


def sleepers(count: int, now: int) -> Iterator[tuple[bytes, bytes]]:
    """Rows of answers that sleep for 30 days: a head and some kilobytes of texts."""
    for number in range(count):
        key = f"many-{number % 1000}", f"s{number}"
        head = Head(Sleep.ASLEEP, "default", until=now + DAYS_MS, at=now, slept_at=now, since=now, told_at=now)
        sleeper = Sleeper(head, _TEXT.encode(), KeptAnswer(now, key[0].encode()))
        rounds = row_of(Part.ROUNDS, ToolRounds(now, conversation_id=_TEXT), *key)
        yield from ((row.key, row.value or b"") for row in (*sleeper.rows(*key), rounds))


async def count_answers(settings: Settings, folder: Path, count: int) -> None:
    states = States(settings)
    with WorkerProcess(settings, folder / "answers.log") as worker:
        await asyncio.to_thread(worker.wait_owning, 1)
        memory, began = [memory_mb(worker)], time.monotonic()
        for first in range(0, count, count // _STEPS):
            await send(settings, settings.topic("requests"), questions(first, count // _STEPS))
            await states.until(first + count // _STEPS, "asleep")
            memory.append(memory_mb(worker))
        took = time.monotonic() - began
        await asyncio.sleep(5.0)
        print(f"{count} answers asleep after {took:.0f} s; {await lag(settings)} records of `requests` not committed")
        print(f"memory at first, and with each {count // _STEPS} more: {_in_mb(memory)}", flush=True)
        erased = json.dumps({"type": "erase", "user_id": "u0"}).encode()
        await send(settings, settings.topic("controls"), iter([(b"u0", erased)]))
        gone_s = await states.until(count // USERS, "")
        print(f"an erasure of {count // USERS} of them: {gone_s:.1f} s until all are gone from `waits`")


async def count_plain(settings: Settings, folder: Path, count: int) -> None:
    with WorkerProcess(settings, folder / "plain.log") as worker:
        await asyncio.to_thread(worker.wait_owning, 1)
        memory = [memory_mb(worker)]
        for first in range(0, count, count // _STEPS):
            await send(settings, settings.topic("requests"), questions(first, count // _STEPS, sleep=False))
            while await lag(settings):
                await asyncio.sleep(0.5)
            memory.append(memory_mb(worker))
        print(f"memory at first, and with each {count // _STEPS} plain requests more: {_in_mb(memory)}", flush=True)


def _in_mb(memory: Sequence[float]) -> str:
    return ", ".join(f"{one:.0f}" for one in memory) + " MB"


async def lag(settings: Settings) -> int:
    place = TopicPartition(settings.topic("requests"), 0)
    options = settings.cluster.options()
    async with AIOKafkaConsumer(**options, group_id=settings.group, enable_auto_commit=False) as consumer:
        consumer.assign([place])
        return (await consumer.end_offsets([place]))[place] - (await consumer.committed(place) or 0)


async def count_starts(settings: Settings, folder: Path, rows: int) -> None:
    folder_of, standby = folder / "starts", folder / "standby"
    for name in ("without the rows", "with the rows"):
        own = settings.model_copy(update={"data_dir": folder_of, "standby_replicas": 1})
        shutil.rmtree(folder_of, ignore_errors=True)
        for how in ("no folder", "with its folder"):
            with WorkerProcess(own, folder / "start.log") as worker:
                began = time.monotonic()
                await asyncio.to_thread(worker.wait_joined)
                print(f"start {name}, {how}: {time.monotonic() - began:.1f} s; {restored(worker)}", flush=True)
                await asyncio.sleep(10.0)
                print(f"memory after the first scan: {memory_mb(worker):.0f} MB", flush=True)
        other = settings.model_copy(update={"data_dir": standby, "standby_replicas": 1})
        with WorkerProcess(own, folder / "one.log") as one, WorkerProcess(other, folder / "two.log") as two:
            await asyncio.to_thread(one.wait_assigned)
            await asyncio.to_thread(two.wait_assigned)
            owner, follower = (one, two) if b": epoch " in one.log.read_bytes()[one._began_at :] else (two, one)
            await asyncio.sleep(15.0 + rows / 10_000)
            since = follower.log.stat().st_size
            owner.kill()
            began = time.monotonic()
            await asyncio.to_thread(follower.wait_owning, 1, since)
            print(f"take-over {name}, by a standby: {time.monotonic() - began:.1f} s; {restored(follower)}", flush=True)
        if name == "without the rows":
            began = time.monotonic()
            await send(settings, changelog_topic(settings, Table.ASLEEP), sleepers(rows, time.time_ns() // 1_000_000))
            print(f"rows of {rows} answers written in {time.monotonic() - began:.0f} s", flush=True)


def restored(worker: WorkerProcess) -> str:
    return re.findall(r"to continue, (.*)", worker.log.read_text())[-1]


async def run(options: argparse.Namespace, folder: Path) -> None:
    cluster = KafkaCluster(folder / "kafka")
    await asyncio.to_thread(cluster.start)
    try:
        policy = folder / "policy.toml"
        policy.write_text(_POLICY)
        values = {"engine": "paced", "paced_tokens_per_s": 1000.0, "embedder": "none", "partitions": 1}
        values |= {"policy": policy, "data_dir": folder / "data"}
        parts = (
            ("plain", options.answers, count_plain),
            ("answers", options.answers, count_answers),
            ("starts", options.rows, count_starts),
        )
        for part, number, count in parts:
            if number:
                own = {
                    **values,
                    "data_dir": folder / part,
                    "topic_prefix": f"{part}-",
                    "app_id": f"{part}-app",
                    "broker": cluster.broker_setting,
                }
                settings = Settings(_env_file=None, **own)  # type: ignore[arg-type]
                await create_topics(settings)
                await count(settings, folder, number)
    finally:
        cluster.kill()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--answers", type=int, default=10_000)
    parser.add_argument("--rows", type=int, default=100_000)
    with tempfile.TemporaryDirectory(prefix="parley-sleepers-", ignore_cleanup_errors=True) as name:
        print(f"load average {os.getloadavg()[0]:.0f}")
        sys.exit(asyncio.run(run(parser.parse_args(), Path(name))))
