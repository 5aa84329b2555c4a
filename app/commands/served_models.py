"""Which models the workers serve, as each states in its commits."""

from __future__ import annotations

from aiokafka import TopicPartition
from aiokafka.errors import KafkaError

from app.commands.terminal import WrongUseError
from app.delivery.commits.handover import are_all_stated, served
from app.kafka.clients import admin_of
from app.policy.file import AUTO_MODEL, DEFAULT_MODEL
from app.process.printable import printable
from app.settings import Settings


async def check_model(settings: Settings, partitions: int, model: str) -> None:
    """Raise `WrongUseError` if no worker serves a model of that name. What cannot be known is left to the workers:
    before any of them has stated what it serves, without the right to read that, versions of models, and folders.
    """
    if model in {DEFAULT_MODEL, AUTO_MODEL} or "@" in model or model.startswith(("/", ".", "~")):
        return
    names = await _served(settings, partitions)
    if names and are_all_stated(names) and model not in names:
        raise WrongUseError(
            f"no worker serves a model {printable(model)!r}; there are {', '.join(map(printable, names))}"
        )


async def _served(settings: Settings, partitions: int) -> list[str]:
    of = [TopicPartition(settings.topic("requests"), number) for number in range(partitions)]
    try:
        async with admin_of(settings.cluster) as admin:
            committed = await admin.list_consumer_group_offsets(settings.group, partitions=of)
    except (KafkaError, OSError):
        return []
    return served(committed.values())
