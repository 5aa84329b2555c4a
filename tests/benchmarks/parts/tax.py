"""What Kafka and Faust cost the first token, with nothing else going on.

Side by side: a plain aiokafka echo, the bare engine under the same arrivals, and Parley. The tax is Parley's wait less
the engine's own; the echo's round trip is what any way through Kafka costs.
"""

from __future__ import annotations

from contextlib import AsyncExitStack

from tests.benchmarks.load import Load
from tests.benchmarks.parts.rounds import Measured, alternate, start
from tests.benchmarks.result import Claim, Plot, Result, Series
from tests.benchmarks.rig import Rig
from tests.benchmarks.scale import Scale
from tests.benchmarks.systems import Bare, Echo, Parley

RATE = 5.0
TOKENS = 12


async def run(rig: Rig, scale: Scale) -> Result:
    load = Load(seconds=2 * scale.seconds, rate=RATE, max_tokens=TOKENS, fresh=True)
    systems = [Echo(rig), Bare(rig), Parley(rig)]
    async with AsyncExitStack() as stack:
        await start(stack, systems)
        found = await alternate(dict.fromkeys(systems, load), scale.rounds, scale.warm_up)
    echo, bare, parley = (found[system] for system in systems)
    result = Result("tax", f"First token, unloaded ({RATE:g} requests/s, Poisson)", COLUMNS)
    for system in systems:
        result.rows.append(row(system.name, found[system]))
    result.claims = claims(echo, bare, parley)
    result.plots = [distribution([(system.name, found[system]) for system in systems])]
    return result


COLUMNS = ["system", "requests", "first token p50 ms", "p99 ms", "inter-token p50 ms", "p99 ms"]


def row(name: str, found: Measured) -> list[str | float | int]:
    figures = found.stats
    return [
        name,
        figures.requests,
        figures.first_p50 * 1e3,
        figures.first_p99 * 1e3,
        figures.gap_p50 * 1e3,
        figures.gap_p99 * 1e3,
    ]


def claims(echo: Measured, bare: Measured, parley: Measured) -> list[Claim]:
    floor, own, whole = echo.stats, bare.stats, parley.stats
    tax = (whole.first_p50 - own.first_p50) / floor.first_p50, (whole.first_p99 - own.first_p99) / floor.first_p99
    return [
        Claim("first token less the bare engine's, in echoes, p50", tax[0], "<=", 1.5),
        Claim("first token less the bare engine's, in echoes, p99", tax[1], "<=", 2.0),
        Claim("added inter-token p99, in the echo's p99", (whole.gap_p99 - own.gap_p99) / floor.first_p99, "<=", 1.0),
    ]


def distribution(found: list[tuple[str, Measured]]) -> Plot:
    series = []
    for name, measured in found:
        waits = sorted(reply.first * 1e3 for reply in measured.replies if reply.first is not None)
        shares = [(number + 1) / len(waits) for number in range(len(waits))]
        series.append(Series(name, list(waits), shares))
    return Plot("Time to the first token", "ms", "share of requests", series, log=True)
