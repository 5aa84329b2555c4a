"""`parley topics`: create and check the topics."""

from __future__ import annotations

import sys

import click

from app.commands.terminal import WrongUseError, note, run, settings_of_terminal
from app.kafka.broker_version import check_version
from app.kafka.topics import TopicsError, TopicState, create_topics, find_topics
from app.settings import Settings


@click.group(short_help="Create and list Parley's topics.")
def topics() -> None:
    """Parley's topics."""


@topics.command()
def create() -> None:
    """Create the topics that are missing."""
    settings = settings_of_terminal()
    try:
        created = run(_create(settings))
    except TopicsError as error:
        raise WrongUseError(str(error)) from None
    for name in created:
        click.echo(f"created {name}, {settings.partitions} partitions")
    if not created:
        click.echo("all topics exist")


async def _create(settings: Settings) -> list[str]:
    if warning := await check_version(settings.cluster):
        note(f"warning: {warning}")
    return await create_topics(settings)


@topics.command("list")
def list_topics() -> None:
    """Show which topics exist; exit code 1 unless all are as in the settings."""
    states = run(find_topics(settings_of_terminal()))
    for topic in states:
        click.echo(_line(topic))
    sys.exit(0 if all(topic.fits for topic in states) else 1)


def _line(topic: TopicState) -> str:
    if topic.partitions is None:
        return f"{topic.spec.name}: missing"
    wrong = "" if topic.fits else f", not {topic.spec.partitions}"
    return f"{topic.spec.name}: {topic.partitions} partitions{wrong}"
