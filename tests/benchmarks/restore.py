"""Restoring a wiped store from its changelog, against a plain aiokafka read of the same records in the same run.

    python -m tests.benchmarks.restore [--conversations 1000000] [--partitions 4] [--behind 1000]

The rows are written as the finish writes them, in transactions. Each partition is restored as a new owner does it: from
nothing, and as the standby that it was, which lacks what was written since it looked last.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import tempfile
import time
from pathlib import Path

from aiokafka import AIOKafkaProducer, TopicPartition

from app.delivery.clients import Clients
from app.delivery.commits.changelog import changelog_topic, changelogs, create_changelogs, restore
from app.local.kafka import KafkaCluster
from app.settings import Settings
from tables import records
from tables.conversations import MemoryRules
from tables.records import Conversation, Table, Turn
from tables.store import PartitionStore

IN_A_TRANSACTION = 5000
RULES = MemoryRules(10, 10**12)


def row(number: int) -> tuple[bytes, bytes]:
    conversation: Conversation | None = None
    for turn in range(2):
        turn_row = Turn(f"request-{number}-{turn}", "Where is my order 48213?", "It arrives in 2 to 3 days.", 1)
        conversation = RULES.remember(conversation, turn_row, 1)
    return records.key(f"user-{number}", "default"), records.encode(conversation)


async def write(settings: Settings, partition: int, numbers: range) -> None:
    producer = AIOKafkaProducer(
        **settings.cluster.options(), transactional_id=f"bench-{partition}", max_batch_size=1 << 19
    )
    await producer.start()
    topic = changelog_topic(settings, Table.CONVERSATIONS)
    for begin in range(numbers.start, numbers.stop, IN_A_TRANSACTION):
        async with producer.transaction():
            for number in range(begin, min(begin + IN_A_TRANSACTION, numbers.stop)):
                key, value = row(number)
                await producer.send(topic, value, key=key, partition=partition)
    await producer.stop()


async def plain_read(settings: Settings, partition: int) -> tuple[int, float]:
    reader = Clients(settings).log_reader()
    await reader.start()
    place = TopicPartition(changelog_topic(settings, Table.CONVERSATIONS), partition)
    reader.assign([place])
    end = (await reader.end_offsets([place]))[place]
    await reader.seek_to_beginning(place)
    began, count = time.perf_counter(), 0
    while await reader.position(place) < end:
        for found in (await reader.getmany(place, timeout_ms=200)).values():
            count += len(found)
    took = time.perf_counter() - began
    await reader.stop()
    return count, took


async def restored(settings: Settings, partition: int, *, wiped: bool = True) -> tuple[int, float]:
    path = settings.data_dir / str(partition)
    if wiped:
        shutil.rmtree(path, ignore_errors=True)
    reader = Clients(settings).log_reader()
    await reader.start()
    began = time.perf_counter()
    store = PartitionStore.open(path, now_ms=0, tombstones_kept_ms=1 << 60)
    count = await restore(reader, store, changelogs(settings, partition))
    took = time.perf_counter() - began
    store.close()
    await reader.stop()
    return count, took


async def main(options: argparse.Namespace, folder: Path) -> None:
    kafka = KafkaCluster(folder / "kafka")
    kafka.start()
    try:
        settings = Settings(
            _env_file=None, broker=kafka.broker_setting, partitions=options.partitions, data_dir=folder / "data"
        )
        await create_changelogs(settings)
        each = options.conversations // options.partitions
        began = time.perf_counter()
        for partition in range(options.partitions):
            await write(settings, partition, range(partition * each, (partition + 1) * each))
            print(f"partition {partition}: {each} rows written, {time.perf_counter() - began:.0f} s", flush=True)
        read, applied = [], []
        for partition in range(options.partitions):
            read.append(await plain_read(settings, partition))
            applied.append(await restored(settings, partition))
        report("plain aiokafka read", read)
        report("restore into RocksDB", applied)
        ratio = sum(took for _, took in applied) / sum(took for _, took in read)
        print(f"restore takes {ratio:.2f} times the plain read")
        began = time.perf_counter()
        together = await asyncio.gather(*(restored(settings, partition) for partition in range(options.partitions)))
        rows, took = sum(count for count, _ in together), time.perf_counter() - began
        print(f"all partitions at once: {rows} rows in {took:.1f} s, {rows / took:,.0f} rows/s", flush=True)
        for partition in range(options.partitions):
            await write(settings, partition, range(partition * each, partition * each + options.behind))
        warm = [await restored(settings, partition, wiped=False) for partition in range(options.partitions)]
        report("restore of a standby", warm)
    finally:
        kafka.kill()


def report(name: str, stats: list[tuple[int, float]]) -> None:
    rows, took = sum(count for count, _ in stats), sum(took for _, took in stats)
    print(f"{name:<22} {rows} rows in {took:6.1f} s   {rows / took:>10,.0f} rows/s", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--conversations", type=int, default=1_000_000)
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--behind", type=int, default=1000, help="rows a partition that a standby has not seen")
    with tempfile.TemporaryDirectory() as name:
        asyncio.run(main(parser.parse_args(), Path(name)))
