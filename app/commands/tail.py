"""`parley tail`: print the records of a topic as lines of JSON."""

from __future__ import annotations

from typing import Any

import click
import msgspec
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError

from app.commands.record_line import line_of
from app.commands.terminal import WrongUseError, run, settings_of_terminal
from app.kafka.clients import KafkaUnusableError, consumer, partitions_of, start
from app.printable import printable_json
from app.reader.position import Edge, seek
from app.settings import Settings
from app.wire.ids import partition_for

TOPICS = ["tokens", "requests", "turns", "controls", "usage", "dead-letters"]


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """Which records to print."""

    topic: str
    from_beginning: bool
    follow: bool
    partition: int | None
    user: str | None
    request: str | None
    count: int | None

    def includes(self, line: dict[str, Any]) -> bool:
        if self.user is not None and line["key"] != self.user:
            return False
        value = line["value"]
        return self.request is None or (isinstance(value, dict) and value.get("request_id") == self.request)


@click.command()
@click.argument("topic", type=click.Choice(TOPICS))
@click.option("--from-beginning", is_flag=True, help="Start at the oldest record instead of the end.")
@click.option("--no-follow", "follow", flag_value=False, default=True, help="Stop at the current end.")
@click.option("--partition", type=click.IntRange(min=0), help="Only this partition.")
@click.option("--user", help="Only records with this key.")
@click.option("--request", help="Only records with this request id.")
@click.option("-n", "--count", type=click.IntRange(min=1), help="Stop after this many records.")
def tail(**options: Any) -> None:
    """Print the records of TOPIC as they arrive, one line of JSON each. Ctrl-C stops it."""
    run(_tail(settings_of_terminal(), Choice(**options)))


async def _tail(settings: Settings, choice: Choice) -> None:
    cluster, topic = settings.cluster, settings.topic(choice.topic)
    partitions = _partitions(choice, (await partitions_of(cluster, [topic]))[topic])
    records = consumer(cluster)
    records.assign([TopicPartition(topic, partition) for partition in partitions])
    await start(records)
    try:
        await _print(records, choice)
    except KafkaError as error:
        raise KafkaUnusableError(f"the topic {topic!r} cannot be read: {error}") from None
    finally:
        await records.stop()


async def _print(records: AIOKafkaConsumer, choice: Choice) -> None:
    assigned = records.assignment()
    await seek(records, assigned, Edge.BEGINNING if choice.from_beginning else Edge.END)
    ends = None if choice.follow else await records.end_offsets(assigned)
    printed = 0
    while ends is None or await _is_before(records, ends):
        for batch in (await records.getmany(timeout_ms=200)).values():
            for record in batch:
                line = line_of(choice.topic, record)
                if not choice.includes(line):
                    continue
                click.echo(printable_json(msgspec.json.encode(line)))
                printed += 1
                if printed == choice.count:
                    return


async def _is_before(records: AIOKafkaConsumer, ends: dict[TopicPartition, int]) -> bool:
    positions = [(await records.position(partition), end) for partition, end in ends.items()]
    return any(position < end for position, end in positions)


def _partitions(choice: Choice, count: int) -> list[int]:
    if choice.partition is not None:
        if choice.partition >= count:
            raise WrongUseError(f"--partition {choice.partition}: the topic has the partitions 0 to {count - 1}")
        return [choice.partition]
    if choice.user is not None and choice.topic != "dead-letters":  # its records may have any key
        return [partition_for(choice.user, count)]
    return list(range(count))
