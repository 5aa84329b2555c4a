"""Users move to topics with more partitions, with what they have and without what was erased."""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import PIPE, STDOUT
from pathlib import Path

from aiokafka import AIOKafkaProducer

from app.delivery.commits.changelog import changelog_topic, create_changelogs
from app.kafka.topics import create_topics
from app.settings import Settings
from app.wire.codec import decode, encode
from app.wire.ids import partition_for
from app.wire.turn import Turn
from tables import records
from tables.records import Conversation, Erased, Table
from tests.conftest import NewSettings
from tests.environment import environment_of
from tests.faults.records import read_topic
from tests.integration.search.history import NOW, turn

SCRIPT = Path(__file__).parents[3] / "deploy" / "operations" / "move_users.py"
USERS = [f"user-{number}" for number in range(12)]


async def write(settings: Settings) -> None:
    """Three turns and a conversation of each; the second turn of `user-3` and those before it are erased."""
    producer = AIOKafkaProducer(**settings.cluster.options())
    await producer.start()
    try:
        for user in USERS:
            for number in range(3):
                one = turn(user, f"r{number}", created_at=NOW + number)
                await producer.send_and_wait(settings.topic("turns"), encode(one)[0], key=user.encode())
            partition = partition_for(user, settings.partitions)
            for activity in (1, 2):
                row, key = records.encode(Conversation(activity)), records.key(user, "default")
                topic = changelog_topic(settings, Table.CONVERSATIONS)
                await producer.send_and_wait(topic, row, key=key, partition=partition)
        mark, key = records.encode(Erased(NOW + 1, indexed=NOW + 1)), records.key("user-3")
        await producer.send_and_wait(
            changelog_topic(settings, Table.ERASED),
            mark,
            key=key,
            partition=partition_for("user-3", settings.partitions),
        )
    finally:
        await producer.stop()


async def moved(settings: Settings, prefix: str, partitions: int) -> tuple[int, str]:
    command = [sys.executable, str(SCRIPT), "--to-prefix", prefix, "--to-partitions", str(partitions)]
    environment = environment_of(settings) | {"PYTHONPATH": str(SCRIPT.parents[2])}
    process = await asyncio.create_subprocess_exec(*command, env=environment, stdout=PIPE, stderr=STDOUT)
    said, _ = await process.communicate()
    return process.returncode or 0, said.decode()


async def test_users_have_everything_in_their_new_partition_but_what_is_erased(new_settings: NewSettings) -> None:
    old = await new_settings()
    new = old.model_copy(update={"topic_prefix": f"new-{old.topic_prefix}", "partitions": 7})
    await create_changelogs(old)
    await write(old)
    await create_topics(new)
    code, said = await moved(old, new.topic_prefix, 7)
    assert code == 0, said
    turns = [(record, decode(Turn, record.value, record.headers)) for record in await read_topic(new, "turns")]
    expected = {(user, f"r{number}") for user in USERS for number in range(3)} - {("user-3", "r0"), ("user-3", "r1")}
    assert [(one.user_id, one.request_id) for _, one in turns if one.user_id == "user-5"] == [
        ("user-5", "r0"), ("user-5", "r1"), ("user-5", "r2"),
    ]  # fmt: skip
    assert {(one.user_id, one.request_id) for _, one in turns} == expected
    assert len(turns) == len(expected)
    assert all(record.partition == partition_for(one.user_id, 7) for record, one in turns)
    rows = await read_topic(new, f"{new.app_id}-conversations-changelog")
    assert len(rows) == len(USERS)
    assert all(b'"last_activity":2' in (row.value or b"") for row in rows)
    assert all(row.partition == partition_for(records.key_parts(row.key or b"")[0], 7) for row in rows)
    code, said = await moved(old, new.topic_prefix, 7)
    assert (code, "has records: copy to new topics" in said) == (1, True), said
