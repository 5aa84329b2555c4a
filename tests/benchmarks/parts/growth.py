"""How the cost of an answer grows: with users, partitions, answers at once, and the length of a conversation."""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import replace

import msgspec

from tests.benchmarks.load import Load
from tests.benchmarks.parts.rounds import Measured, alternate, start
from tests.benchmarks.result import Plot, Result, Series
from tests.benchmarks.rig import Rig
from tests.benchmarks.scale import Scale
from tests.benchmarks.systems import Parley

RATE = 6.0
TOKENS = 16
COLUMNS = [
    "grows", "to", "first p50 ms", "p99 ms", "inter-token p99 ms", "whole p50 ms", "p99 ms", "tokens/s",
    "engine CPU µs/token", "other CPU ms/request", "MB",
]  # fmt: skip


async def run(rig: Rig, scale: Scale) -> Result:
    result = Result("growth", f"How the cost grows (Parley, {RATE:g} requests/s unless a row says otherwise)", COLUMNS)
    async with AsyncExitStack() as stack:
        widths = {count: Parley(replace(rig, partitions=count)) for count in scale.partitions}
        await start(stack, list(widths.values()))
        load = Load(seconds=scale.seconds, rate=RATE, max_tokens=TOKENS)
        found = await alternate(dict.fromkeys(widths.values(), load), min(2, scale.rounds), scale.warm_up)
        add(result, "partitions", {count: found[system] for count, system in widths.items()})
        system = widths[scale.partitions[-1]]
        for name, loads in (
            ("users", {count: msgspec.structs.replace(load, users=count) for count in scale.users}),
            ("at once", {n: Load(seconds=scale.seconds, at_once=n, max_tokens=TOKENS) for n in scale.at_once}),
        ):
            add(result, name, {count: await once(system, one, scale) for count, one in loads.items()})
        add(result, "turns before", {turns: await remembered(system, load, turns, scale) for turns in scale.history})
    return result


async def once(system: Parley, load: Load, scale: Scale) -> Measured:
    return (await alternate({system: load}, min(2, scale.rounds), scale.warm_up / 3))[system]


async def remembered(system: Parley, load: Load, turns: int, scale: Scale) -> Measured:
    """Users with so many earlier turns."""
    users = 2 * round(load.rate * load.seconds)  # more than will ask
    people = f"talkers-{turns}"
    for turn in range(turns):
        load = Load(seconds=0, at_once=users, people=people, each=True, max_tokens=8, seed=turn)
        await system.run(load)
    one = msgspec.structs.replace(load, people=people, each=True, seconds=load.seconds)
    return (await alternate({system: one}, 1, 0))[system]


def add(result: Result, grows: str, found: dict[int, Measured]) -> None:
    for count, measured in found.items():
        figures, used, tokens = measured.stats, measured.used, max(1, measured.tokens)
        result.rows.append([
            grows, count, *(1e3 * value for value in (figures.first_p50, figures.first_p99, figures.gap_p99)),
            figures.whole_p50 * 1e3, figures.whole_p99 * 1e3, figures.tokens_per_s, used.engine_s / tokens * 1e6,
            used.other_s / max(1, figures.requests) * 1e3, used.memory / 1e6,
        ])  # fmt: skip
    counts = [str(count) for count in found]
    series = [
        Series(name, counts, [getattr(measured.stats, value) * 1e3 for measured in found.values()])
        for name, value in (("first token p50", "first_p50"), ("first token p99", "first_p99"))
    ]
    result.plots.append(Plot(f"First token against {grows}", grows, "ms", series))
