"""`parley tail`: print the records of a topic as lines of JSON."""

from __future__ import annotations

from typing import Any

import click
import msgspec
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError

from app.commands.record_line import line_of
from app.commands.terminal import WrongUseError, run, settings_of_terminal
from app.kafka.clients import KafkaUnusableError, consumer, partitions_of, start, stop
from app.policy.check import read_policy
from app.policy.file import PolicyError
from app.process.printable import printable, printable_json
from app.reader.position import Edge, seek
from app.settings import Settings
from app.settings.kafka import TopicName
from app.wire.ids import partition_for

_READ_MOST = (TopicName.TOKENS, TopicName.REQUESTS, TopicName.TURNS, TopicName.DEAD_LETTERS)
TOPICS = [name.value for name in (*_READ_MOST, *(name for name in TopicName if name not in _READ_MOST))]
_BY_USER = frozenset(TOPICS) - {
    TopicName.DEAD_LETTERS,
    TopicName.USAGE,
    TopicName.AUDIT,
    TopicName.ERASURES,
}


class _Topic(click.Choice[str]):
    """One of Parley's topics; any other name is left to `_named`, which knows the policy's."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        return value if isinstance(value, str) and value not in self.choices else super().convert(value, param, ctx)


class TopicArgument(msgspec.Struct, frozen=True, kw_only=True):
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


@click.command(short_help="Print the records of a topic as they arrive.")
@click.argument("topic", type=_Topic(TOPICS), metavar="TOPIC")
@click.option("--from-beginning", is_flag=True, help="Start at the oldest record instead of the end.")
@click.option("--no-follow", "follow", flag_value=False, default=True, help="Stop at the current end.")
@click.option("--partition", type=click.IntRange(min=0), help="Only this partition.")
@click.option("-u", "--user", help="Only records with this key.")
@click.option("--request", help="Only records with this request id.")
@click.option("-n", "--count", type=click.IntRange(min=1), help="Stop after this many records.")
def tail(**options: Any) -> None:
    """Print the records of TOPIC as they arrive, one line of JSON each. Ctrl-C stops it.

    TOPIC is one of Parley's, or one that the policy file names for an intake or an egress.
    """
    settings, choice = settings_of_terminal(), TopicArgument(**options)
    run(_tail(settings, choice, _named(settings, choice.topic)))


tail.help = f"{tail.help}\n\nParley's topics: {', '.join(TOPICS)}."


def _named(settings: Settings, topic: str) -> str:
    """The topic's name in Kafka. That of others' topics has no prefix."""
    if topic in TOPICS:
        return settings.topic(topic)
    try:
        policy = read_policy(settings)
    except PolicyError as error:
        raise WrongUseError(str(error)) from None
    foreign = sorted({*(rules.topic for rules in policy.intake), *(rules.topic for rules in policy.egress)})
    if topic not in foreign:
        hint = "set PARLEY_POLICY to read one of an intake or an egress; " if settings.policy is None else ""
        there_are = ", ".join([*TOPICS, *foreign])
        raise WrongUseError(f"there is no topic {printable(topic)!r}; {hint}there are {there_are}")
    return topic


async def _tail(settings: Settings, choice: TopicArgument, topic: str) -> None:
    cluster = settings.cluster
    partitions = _partitions(choice, (await partitions_of(cluster, [topic]))[topic])
    records = consumer(cluster)
    records.assign([TopicPartition(topic, partition) for partition in partitions])
    await start(records)
    try:
        await _print(records, choice)
    except KafkaError as error:
        raise KafkaUnusableError(f"the topic {topic!r} cannot be read: {error}") from None
    finally:
        await stop(records)


async def _print(records: AIOKafkaConsumer, choice: TopicArgument) -> None:
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


def _partitions(choice: TopicArgument, count: int) -> list[int]:
    if choice.partition is not None:
        if choice.partition >= count:
            raise WrongUseError(f"--partition {choice.partition}: the topic has the partitions 0 to {count - 1}")
        return [choice.partition]
    if choice.user is not None and choice.topic in _BY_USER:
        return [partition_for(choice.user, count)]
    return list(range(count))
