"""Turns flow while Kafka Connect and PostgreSQL are killed; then the rows are compared with the topics.

A real worker answers, and users are erased on the way. The topic `turns` also has what no row may come of: a turn of a
transaction that was aborted, and rubbish.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec
from aiokafka import AIOKafkaProducer

from app.local.kafka import KafkaCluster
from app.wire.codec import decode
from app.wire.erasure import Erasure
from app.wire.error import WireError
from app.wire.turn import Turn
from tables.erasures import ErasedUntil, Scope
from tests.analytics.connect_node import DEPLOY, ConnectNode
from tests.analytics.postgresql_node import USER, PostgresNode
from tests.integration.worker.client import Client

USERS = 40
GHOST = "ghost"
PATIENCE_S = 180.0
CONNECTOR = DEPLOY / "postgresql" / "connector.json"

Key = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the topics have and what the tables have. Everything from `missing` on should be 0, or 1 for rubbish."""

    turns: int
    erased: int
    rows: int
    connect_kills: int
    postgresql_kills: int
    missing: int
    foreign: int
    differing: int
    wrong_audit: int
    wrong_usage: int
    rejected: int

    @property
    def is_right(self) -> bool:
        wrong = (self.missing, self.foreign, self.differing, self.wrong_audit, self.wrong_usage)
        return not any(wrong) and self.rejected == 1


class Analytics:
    """Kafka Connect beside a broker, with the connector and the tables of `deploy/connect/postgresql`."""

    def __init__(self, kafka: KafkaCluster, folder: Path, prefix: str) -> None:
        self._prefix = prefix
        self.postgresql = PostgresNode()
        environment = {
            "PARLEY_POSTGRESQL_URL": self.postgresql.jdbc_url,
            "PARLEY_POSTGRESQL_USER": USER,
            "PARLEY_POSTGRESQL_PASSWORD": "none is asked for",
        }
        broker = kafka.broker_setting.removeprefix("kafka://")
        self.connect = ConnectNode(folder / "connect", broker, f"{prefix}connect", environment)

    def start(self) -> None:
        self.postgresql.start()
        self.postgresql.run(DEPLOY / "postgresql" / "tables.sql")
        self.connect.start()
        topics = ("turns", "usage", "audit", "erasures")
        self.connect.put(CONNECTOR, topics=",".join(self._prefix + topic for topic in topics))

    def kill(self) -> None:
        self.connect.kill()
        self.postgresql.close()


async def storm(
    analytics: Analytics,
    client: Client,
    *,
    turns: int,
    kills: int,
    over_s: float,
    report: Callable[[str], None] = print,
) -> Outcome:
    """Ask for so many turns within `over_s` seconds, and kill as often within them."""
    chance = random.Random(turns)
    begun = time.monotonic()
    asking = asyncio.create_task(_ask(client, chance, turns, over_s))
    await _write_what_does_not_count(client)
    connect_kills = postgresql_kills = 0
    for number in range(1, kills + 1):
        await asyncio.sleep(max(0.0, begun + over_s * (number - chance.random()) / kills - time.monotonic()))
        if number % 5 == 0:
            await asyncio.to_thread(analytics.postgresql.kill)
            await asyncio.to_thread(analytics.postgresql.start)
            postgresql_kills += 1
        await asyncio.to_thread(analytics.connect.kill)
        await asyncio.to_thread(analytics.connect.start)
        connect_kills += 1
        (rows,) = analytics.postgresql.rows("select count(*) from parley.turns")
        report(f"kill {number} of {kills}: {rows[0]} rows")
    await asking
    return await _compare(analytics, client, turns, connect_kills, postgresql_kills)


async def _ask(client: Client, chance: random.Random, turns: int, over_s: float) -> None:
    began = time.monotonic()
    for number in range(turns):
        user = f"user-{chance.randrange(USERS)}"
        await client.ask(user, f"question {number} \0 of {user}", max_tokens=2, conversation_id=f"c{number % 7}")
        if chance.random() < 10 / turns:
            one = {"type": "erase_conversation", "conversation_id": f"c{chance.randrange(7)}"}
            erase = chance.choice(({"type": "erase"}, one))
            await client.send("controls", {"user_id": user, **erase}, user)
        await asyncio.sleep(max(0.0, began + over_s * number / turns - time.monotonic()))


async def _write_what_does_not_count(client: Client) -> None:
    turns = client.settings.topic("turns")
    producer = AIOKafkaProducer(**client.settings.cluster.options(), transactional_id=f"{turns}-ghost")
    await producer.start()
    try:
        await producer.begin_transaction()
        ghost = (await client.records("turns"))[:1]
        value = ghost[0].value if ghost else b'{"user_id": "ghost"}'
        await producer.send_and_wait(turns, value.replace(b"user-", b"ghost-"), key=GHOST.encode(), partition=0)
        await producer.abort_transaction()
    finally:
        await producer.stop()
    await client.producer.send_and_wait(turns, b"no JSON", partition=0)


async def _compare(
    analytics: Analytics, client: Client, turns: int, connect_kills: int, postgresql_kills: int
) -> Outcome:
    """Wait until the tables have what the topics have, or `PATIENCE_S` have passed."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        records = await _turns(client)
        erasures = [decode(Erasure, record.value, record.headers) for record in await client.records("erasures")]
        expected = _kept(records, erasures)
        audit = {(record.partition, record.offset) for record in await client.records("audit")}
        postgresql = analytics.postgresql
        rows = {
            (user, request): (prompt, answer)
            for user, request, prompt, answer in postgresql.rows(
                "select user_id, request_id, prompt, answer from parley.turns"
            )
        }
        audit_rows = set(postgresql.rows("select kafka_partition, kafka_offset from parley.audit"))
        ((counted,),) = postgresql.rows("select coalesce(sum(requests), 0)::bigint from parley.usage")
        ((rejected,),) = postgresql.rows("select count(*) from parley.rejected")
        outcome = Outcome(
            turns=len(records),
            erased=len(records) - len(expected),
            rows=len(rows),
            connect_kills=connect_kills,
            postgresql_kills=postgresql_kills,
            missing=len(expected.keys() - rows.keys()) + max(0, turns - len(records)),
            foreign=len(rows.keys() - expected.keys()),
            differing=sum(rows[key] != texts for key, texts in expected.items() if key in rows),
            wrong_audit=len(audit ^ audit_rows),
            wrong_usage=abs(len(records) - counted),
            rejected=rejected,
        )
        if outcome.is_right or time.monotonic() > deadline:
            return outcome
        await asyncio.sleep(1.0)


async def _turns(client: Client) -> list[Turn]:
    found = []
    for record in await client.records("turns"):
        try:
            found.append(decode(Turn, record.value, record.headers))
        except WireError:
            continue
    return found


def _kept(turns: list[Turn], erasures: list[Erasure]) -> dict[Key, tuple[str, str]]:
    erased = ErasedUntil()
    for one in erasures:
        erased.add(Scope(one.user_id, one.conversation_id), one.erased_at)
    return {
        (turn.user_id, turn.request_id): (turn.prompt.replace("\0", "\ufffd"), turn.answer.replace("\0", "\ufffd"))
        for turn in turns
        if turn.asked_at > erased.at(turn.user_id, turn.conversation_id)
    }


def as_lines(outcome: Outcome) -> str:
    return "\n".join(f"{name:18} {value}" for name, value in msgspec.to_builtins(outcome).items())
