"""What a request costs when the table holds a thousand conversations, and when it holds a million.

The rows are put into the worker's RocksDB before it starts, as a restore would; the sweeper and everything else run as
ever. Each size is a worker of its own; their rounds alternate.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

from tables import records
from tables.records import Conversation, KeptTurn, RowChange, Table
from tables.store import PartitionStore
from tests.benchmarks.load import PROMPTS, Load
from tests.benchmarks.parts.rounds import alternate, start
from tests.benchmarks.progress import report
from tests.benchmarks.result import Claim, Plot, Result, Series
from tests.benchmarks.rig import Rig
from tests.benchmarks.scale import Scale
from tests.benchmarks.systems import Parley

RATE = 8.0
TOKENS = 8
AT_ONCE = 5000
ANSWER = "Your order is on its way; it should be with you within two working days."


async def run(rig: Rig, scale: Scale) -> Result:
    alone = replace(rig, partitions=1)
    systems = {count: Parley(alone) for count in scale.conversations}
    async with AsyncExitStack() as stack:
        for count, system in systems.items():
            report(f"writing {count} conversations")
            await asyncio.to_thread(seed, system.store_path, count)
        await start(stack, list(systems.values()))
        # Users with a past: their earlier turns are read and put into the prompt.
        loads = {
            system: Load(seconds=1.5 * scale.seconds, rate=RATE, max_tokens=TOKENS, users=count, people="seeded")
            for count, system in systems.items()
        }
        found = await alternate(loads, scale.rounds, scale.warm_up)
    result = Result(
        "tables",
        f"Cost of a request against the size of the table ({RATE:g} requests/s, one partition)",
        ["conversations", "CPU ms/request", "first p50 ms", "p99 ms", "whole p50 ms", "p99 ms", "MB"],
    )
    cost = {}
    for count, system in systems.items():
        figures, used = found[system].stats, found[system].used
        cost[count] = (used.engine_s + used.other_s) / max(1, figures.requests) * 1e3
        times = (figures.first_p50, figures.first_p99, figures.whole_p50, figures.whole_p99)
        result.rows.append([count, cost[count], *(1e3 * value for value in times), used.memory / 1e6])
    least, most = min(cost), max(cost)
    first = {count: found[system].stats.first_p50 for count, system in systems.items()}
    result.claims = [
        Claim(f"CPU of a request, {most} against {least} conversations", cost[most] / cost[least], "<=", 1.2),
        Claim(f"first token p50, {most} against {least} conversations", first[most] / first[least], "<=", 1.2),
    ]
    sizes = [str(count) for count in cost]
    result.plots = [
        Plot("Cost of a request", "conversations", "CPU ms", [Series("Parley", sizes, list(cost.values()))])
    ]
    return result


def seed(path: Path, count: int) -> None:
    now = time.time_ns() // 1_000_000
    store = PartitionStore.open(path, now_ms=now, tombstones_kept_ms=3_600_000)
    rows = conversations(count, now)
    for first in range(0, count, AT_ONCE):
        store.apply([next(rows) for _ in range(min(AT_ONCE, count - first))], {}, now_ms=now)
    store.close()


def conversations(count: int, now: int) -> Iterator[RowChange]:
    """Of users `seeded-0`, `seeded-1`...: three turns each, the last within the minute."""
    for number in range(count):
        turns = tuple(KeptTurn(f"past-{number}-{turn}", PROMPTS[turn], ANSWER, now) for turn in range(3))
        row = Conversation(last_activity=now, turns=turns)
        yield RowChange(Table.CONVERSATIONS, records.key(f"seeded-{number}", "default"), records.encode(row))
