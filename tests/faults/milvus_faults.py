"""Faults of Milvus: search is late, answers are not, and in the end every turn is there as it is."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass

from app.local.milvus import MilvusNode
from app.search.milvus.connection import Milvus
from app.search.rows import rows_of
from app.search.vector_store import IndexAwayError
from app.settings import Settings
from app.wire.codec import decode
from app.wire.turn import Turn
from tests.faults.arena import Arena
from tests.faults.faults import Fault, KillWorker
from tests.faults.proxy import Proxy
from tests.faults.records import Key, read_topic

_CAUGHT_UP_S = 90.0


@dataclass(frozen=True)
class MilvusKilled:
    node: MilvusNode
    for_s: float = 10.0
    name: str = "Milvus killed"

    async def inflict(self, arena: Arena) -> None:
        self.node.kill()
        await asyncio.sleep(self.for_s)
        await asyncio.to_thread(self.node.start)


@dataclass(frozen=True)
class MilvusSuspended:
    node: MilvusNode
    for_s: float = 10.0
    name: str = "Milvus silent"

    async def inflict(self, arena: Arena) -> None:
        self.node.suspend()
        await asyncio.sleep(self.for_s)
        self.node.resume()


@dataclass(frozen=True)
class MilvusSlow:
    proxy: Proxy
    for_s: float = 10.0
    name: str = "Milvus slow"

    async def inflict(self, arena: Arena) -> None:
        self.proxy.delay_s = 0.5
        await asyncio.sleep(self.for_s)
        self.proxy.delay_s = 0.0


@dataclass(frozen=True)
class MilvusPartial:
    """Connections are cut in the midst of calls: of some the rows are written and the reply is lost."""

    proxy: Proxy
    for_s: float = 10.0
    name: str = "Milvus partial"

    async def inflict(self, arena: Arena) -> None:
        until = asyncio.get_running_loop().time() + self.for_s
        while asyncio.get_running_loop().time() < until:
            self.proxy.reset()
            await asyncio.sleep(0.5 * arena.random.random())


def faults_of(node: MilvusNode, proxy: Proxy) -> tuple[Fault, ...]:
    return MilvusKilled(node), MilvusSuspended(node), MilvusSlow(proxy), KillWorker(), MilvusPartial(proxy)


async def wrong_rows(settings: Settings, node: MilvusNode) -> list[Key]:
    """Rows that differ from the turns, once they have had the time to follow."""
    turns = [decode(Turn, record.value, record.headers) for record in await read_topic(settings, "turns")]
    due = {row.turn_id: row.text for turn in turns for row in rows_of(turn)}
    found: dict[str, str] = {}
    milvus = Milvus(node.uri)
    try:
        with suppress(TimeoutError):
            async with asyncio.timeout(_CAUGHT_UP_S):
                while (found := await _found(milvus, settings)) != due:
                    await asyncio.sleep(1.0)
    finally:
        await milvus.close()
    return [(row, found.get(row, "missing")) for row in due.keys() | found.keys() if due.get(row) != found.get(row)]


async def _found(milvus: Milvus, settings: Settings) -> dict[str, str]:
    try:
        rows = await milvus.call(
            "query", settings.milvus_collection, filter='turn_id != ""', limit=16_000, output_fields=["text"]
        )
    except IndexAwayError:
        return {}
    return {row["turn_id"]: row["text"] for row in rows}
