"""What a second event loop would do for a worker: its producers in a thread of their own, or a second worker.

Two threads share the GIL, so a second one saves no processor time. Two workers are two processes. Each has an engine,
whose time has a column of its own.
"""

from __future__ import annotations

from contextlib import AsyncExitStack

import msgspec

from tests.benchmarks.load import Load
from tests.benchmarks.parts.rounds import Measured, alternate, start
from tests.benchmarks.result import Claim, Result
from tests.benchmarks.rig import Rig
from tests.benchmarks.scale import Scale
from tests.benchmarks.systems import Parley, ParleyOfTwoLoops, ParleyOfTwoWorkers

TOKENS = 32
RATES = (60.0, 180.0, 360.0)
COLUMNS = [
    "requests/s", "worker", "requests", "goodput /s", "first p50 ms", "p99 ms", "whole p50 ms", "inter-token p99 ms",
    "CPU ms/request without engines", "CPU ms/request of engines", "MB",
]  # fmt: skip


async def run(rig: Rig, scale: Scale) -> Result:
    result = Result("loops", "A worker of one loop, and of two", COLUMNS)
    one = Parley(rig)
    async with AsyncExitStack() as stack:
        workers = [one, ParleyOfTwoLoops(rig), ParleyOfTwoWorkers(rig)]
        await start(stack, workers)
        load = Load(seconds=scale.seconds, max_tokens=TOKENS)
        for rate in RATES:
            loads = dict.fromkeys(workers, msgspec.structs.replace(load, rate=rate))
            found = await alternate(loads, scale.rounds, scale.warm_up)
            result.rows += [_row(rate, worker.name, found[worker]) for worker in workers]
            for worker in workers[1:]:
                for name, of in (("first token p50", _first), ("processor time a request without engines", _other)):
                    ratio = of(found[worker]) / of(found[one])
                    result.claims.append(Claim(f"{name} at {rate:g}/s, {worker.name} over one loop", ratio, "<=", 1.0))
    return result


def _first(measured: Measured) -> float:
    return measured.stats.first_p50


def _other(measured: Measured) -> float:
    return measured.used.other_s / max(1, measured.stats.requests)


def _row(rate: float, name: str, measured: Measured) -> list[str | float]:
    figures, used = measured.stats, measured.used
    times = (figures.first_p50, figures.first_p99, figures.whole_p50, figures.gap_p99)
    spent = (used.other_s, used.engine_s)
    return [
        rate, name, figures.requests, figures.goodput, *(1e3 * one for one in times),
        *(1e3 * one / max(1, figures.requests) for one in spent), used.memory / 1e6,
    ]  # fmt: skip
