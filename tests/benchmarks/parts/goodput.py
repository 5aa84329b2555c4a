"""How many requests a second get their first token within 250 ms, against what people would write otherwise.

Three levels of load, as shares of what the bare engine can do at 32 answers at once; the middle one also in bursts, and
with users who ask once.
"""

from __future__ import annotations

import math
from contextlib import AsyncExitStack

import msgspec

from tests.benchmarks.load import Load
from tests.benchmarks.parts.rounds import Measured, alternate, start, start_peers
from tests.benchmarks.progress import report
from tests.benchmarks.result import Claim, Plot, Result, Series
from tests.benchmarks.rig import Rig
from tests.benchmarks.scale import Scale
from tests.benchmarks.systems import PEERS, Bare, Parley, System

TOKENS = 32
LEVELS = (0.1, 0.25, 0.5)
COLUMNS = [
    "load", "system", "goodput /s", "Parley's in its", "failed", "first p50 ms", "p99 ms", "inter-token p99 ms",
    "whole p50 ms", "p95 ms", "p99 ms", "tokens/s", "CPU µs/token", "MB",
]  # fmt: skip


async def run(rig: Rig, scale: Scale) -> Result:
    parley = Parley(rig)
    result = Result("goodput", "Requests/s whose first token meets 250 ms", COLUMNS)
    async with AsyncExitStack() as stack:
        systems: list[System] = [Bare(rig), parley]
        await start(stack, systems)
        peers, result.notes = await start_peers(stack, [peer(rig) for peer in PEERS])
        systems += peers
        capacity = await capacity_of(systems[0], scale)
        report(f"the bare engine can do {capacity:.1f} requests/s of up to {TOKENS} tokens")
        result.notes.append(
            f"The bare engine's capacity in this run: {capacity:.1f} requests/s of up to {TOKENS} tokens."
        )
        load = Load(seconds=scale.seconds / 2, max_tokens=TOKENS)
        loads = [(f"{level:.0%}", msgspec.structs.replace(load, rate=level * capacity)) for level in LEVELS]
        bursts = msgspec.structs.replace(load, rate=LEVELS[1] * capacity, shape="bursts")
        loads.append((f"{LEVELS[1]:.0%} bursts", bursts))
        # No conversation has a past, and none waits for its previous answer: only Parley gives both.
        strangers = msgspec.structs.replace(load, rate=LEVELS[1] * capacity, fresh=True)
        loads.append((f"{LEVELS[1]:.0%} new users", strangers))
        by_load = {}
        for label, load in loads:
            found = await alternate(dict.fromkeys(systems, load), min(2, scale.rounds), scale.warm_up / 2)
            by_load[label] = found
            for system in systems:
                result.rows.append(row(label, load, system, found[system], found[parley]))
    for system in peers:
        worst = min(_ratio(found[parley], found[system]) for found in by_load.values())
        result.claims.append(Claim(f"goodput over {system.name}, the lowest of all loads", worst, ">=", 1.0))
    result.plots = plots(systems, by_load)
    return result


async def capacity_of(bare: System, scale: Scale) -> float:
    """Requests a second with 32 answers always open."""
    load = Load(seconds=max(2.0, scale.seconds / 2), at_once=32, max_tokens=TOKENS)
    await bare.run(load)
    replies = await bare.run(load)
    return len(replies) / (max(reply.end or 0 for reply in replies) - min(reply.due for reply in replies))


def _ratio(mine: Measured, other: Measured) -> float:
    return mine.stats.goodput / other.stats.goodput if other.stats.goodput else math.inf


def row(label: str, load: Load, system: System, found: Measured, parley: Measured) -> list[str | float | int]:
    figures, used = found.stats, found.used
    return [
        f"{label}: {load.rate:.1f}/s", system.name, figures.goodput, _ratio(parley, found), figures.failed,
        *(value * 1e3 for value in (figures.first_p50, figures.first_p99, figures.gap_p99)),
        *(value * 1e3 for value in (figures.whole_p50, figures.whole_p95, figures.whole_p99)),
        figures.tokens_per_s, (used.engine_s + used.other_s) / max(1, found.tokens) * 1e6, used.memory / 1e6,
    ]  # fmt: skip


def plots(systems: list[System], by_load: dict[str, dict[System, Measured]]) -> list[Plot]:
    def of(value: str) -> list[Series]:
        return [
            Series(system.name, list(by_load), [getattr(found[system].stats, value) for found in by_load.values()])
            for system in systems
        ]

    slow = [Series(one.label, one.x, [y * 1e3 for y in one.y]) for one in of("first_p99")]
    return [
        Plot("Goodput", "load", "requests/s with a first token in 250 ms", of("goodput")),
        Plot("First token, p99", "load", "ms", slow, log=True, line=250),
    ]
