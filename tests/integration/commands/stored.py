"""Turns, erasures and requests to erase, written as workers and users write them."""

from __future__ import annotations

from typing import Any

from aiokafka import AIOKafkaProducer

from app.delivery.commits.changelog import changelog_topic, create_changelogs
from app.settings import Settings
from app.wire.codec import encode
from app.wire.control import erase
from app.wire.ids import partition_for
from app.wire.turn import Timing, Turn
from models.interface.generation import FinishReason, Usage
from tables import records
from tables.erasures import Scope
from tables.records import Erased, Table


def turn(user: str, request: str, prompt: str, answer: str, at: int, **more: Any) -> Turn:
    given: dict[str, Any] = {
        "conversation_id": "default",
        "finish_reason": FinishReason.STOP,
        "model_version": "big@1",
        "timing": Timing(requested_at=at),
        **more,
    }
    return Turn(
        user_id=user, request_id=request, prompt=prompt, answer=answer, usage=Usage(1, 1), created_at=at, **given
    )


async def write(
    settings: Settings, *turns: Turn, erased: dict[Scope, int] | None = None, erasing: tuple[Scope, ...] = ()
) -> None:
    """`erased`: when by the workers; `erasing`: what no worker has erased yet."""
    await create_changelogs(settings)
    producer = AIOKafkaProducer(**settings.cluster.options())
    await producer.start()
    try:
        for one in turns:
            at = partition_for(one.user_id, settings.partitions)
            await producer.send_and_wait(
                settings.topic("turns"), encode(one)[0], key=one.user_id.encode(), partition=at
            )
        for scope, when in (erased or {}).items():
            mark = records.encode(Erased(when, indexed=when))
            topic = changelog_topic(settings, Table.ERASED)
            at = partition_for(scope.user_id, settings.partitions)
            await producer.send_and_wait(topic, mark, key=scope.key, partition=at)
        for scope in erasing:
            value = encode(erase(scope.user_id, scope.conversation_id))[0]
            # Any partition: workers forward an erasure to all of them.
            elsewhere = (partition_for(scope.user_id, settings.partitions) + 1) % settings.partitions
            await producer.send_and_wait(
                settings.topic("controls"), value, key=scope.user_id.encode(), partition=elsewhere
            )
    finally:
        await producer.stop()
