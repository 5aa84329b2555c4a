"""With a core for the engine alone: how much of it the pipeline leaves, and what the rest costs a token.

The engine's thread has one core; its event loop, Kafka and the load generator share the other. So a pipeline that
computes in the engine's way, or makes it wait for the interpreter, shows.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import psutil

from tests.benchmarks.load import Load
from tests.benchmarks.parts.rounds import alternate, start
from tests.benchmarks.result import Claim, Plot, Result, Series
from tests.benchmarks.rig import Rig
from tests.benchmarks.scale import Scale
from tests.benchmarks.systems import Bare, Parley, System

AT_ONCE = 32
TOKENS = 64


async def run(rig: Rig, scale: Scale) -> Result:
    result = Result(
        "pinned",
        f"The engine on one core, everything else on the other; {AT_ONCE} answers at once",
        ["system", "tokens/s", "inter-token p50 ms", "p99 ms", "engine CPU µs/token", "other CPU µs/token"],
    )
    cores = sorted(os.sched_getaffinity(0))
    if sys.platform != "linux" or len(cores) < 2:
        result.notes.append("Needs Linux and two cores.")
        return result
    pinned = replace(rig, engine_core=cores[0], other_core=cores[1])
    systems: list[System] = [Bare(pinned), Parley(pinned)]
    load = Load(seconds=scale.seconds, at_once=AT_ONCE, max_tokens=TOKENS, users=AT_ONCE * 20, fresh=True)
    with on_core(cores[1], rig.brokers):
        async with AsyncExitStack() as stack:
            await start(stack, systems)
            found = await alternate(dict.fromkeys(systems, load), scale.rounds, scale.warm_up)
    for system in systems:
        figures, used, tokens = found[system].stats, found[system].used, max(1, found[system].tokens)
        engine, other = used.engine_s / tokens * 1e6, used.other_s / tokens * 1e6
        result.rows.append(
            [system.name, figures.tokens_per_s, figures.gap_p50 * 1e3, figures.gap_p99 * 1e3, engine, other]
        )
    bare, parley = (found[system].stats.tokens_per_s for system in systems)
    result.claims = [Claim("tokens/s through the pipeline, of the bare engine's", parley / bare, ">=", 0.95)]
    result.plots = [Plot("Tokens/s, pinned", "", "tokens/s", [Series("", [s.name for s in systems], [bare, parley])])]
    return result


@contextmanager
def on_core(core: int, pids: tuple[int, ...]) -> Iterator[None]:
    """This process and those, all threads, on one core; as before afterwards."""
    before = os.sched_getaffinity(0)

    def move(to: set[int]) -> None:
        for pid in (os.getpid(), *pids):
            for process in (psutil.Process(pid), *psutil.Process(pid).children(recursive=True)):
                for task in Path(f"/proc/{process.pid}/task").iterdir():
                    os.sched_setaffinity(int(task.name), to)

    move({core})
    try:
        yield
    finally:
        move(before)
