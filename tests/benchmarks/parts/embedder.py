"""What indexing in Milvus costs the first token: a worker with the embedder against one without, in turn.

Its users have conversations of ten turns. Each worker runs alone, because one with an embedder goes on indexing after
its load. Everything is measured once more beside a busy loop of another process.
"""

from __future__ import annotations

import asyncio
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager, nullcontext
from typing import Any

from app.local.milvus import MilvusNode
from app.local.ports import free_port
from tests.benchmarks.load import Load
from tests.benchmarks.parts.rounds import Measured, alternate
from tests.benchmarks.progress import report
from tests.benchmarks.result import Claim, Result
from tests.benchmarks.rig import Rig
from tests.benchmarks.scale import Scale
from tests.benchmarks.systems import Parley

RATE = 40.0
USERS = 60
TURNS = 10
COLUMNS = ["beside a busy loop", "embedder", "first token p50 ms", "p99 ms", "goodput /s", "CPU ms/request"]


async def run(rig: Rig, scale: Scale) -> Result:
    result = Result("embedder", f"First token with the embedder and without ({RATE:g} requests/s)", COLUMNS)
    async with AsyncExitStack() as stack:
        node = MilvusNode(rig.folder / "milvus", free_port())
        await asyncio.to_thread(node.start)
        stack.callback(node.kill)
        kinds: dict[str, dict[str, Any]] = {
            "with": {"embedder": "minilm", "milvus_uri": node.uri},
            "without": {"embedder": "none"},
        }
        for is_busy in (False, True):
            found: dict[str, list[Measured]] = {kind: [] for kind in kinds}
            with busy_loop() if is_busy else nullcontext():
                for _ in range(scale.rounds):
                    for kind, settings in kinds.items():
                        found[kind].append(await measured(Parley(rig, **settings), scale))
            add(result, "yes" if is_busy else "no", found)
    return result


async def measured(system: Parley, scale: Scale) -> Measured:
    async with system:
        report(f"{TURNS} turns of each of {USERS} users")
        for turn in range(TURNS):
            await system.run(
                Load(seconds=0, at_once=USERS, people="talkers", each=True, users=USERS, max_tokens=8, seed=turn)
            )
        load = Load(seconds=1.5 * scale.seconds, rate=RATE, people="talkers", users=USERS)
        return (await alternate({system: load}, 1, scale.warm_up))[system]


@contextmanager
def busy_loop() -> Iterator[None]:
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        process.kill()
        process.wait()


def add(result: Result, is_busy: str, found: dict[str, list[Measured]]) -> None:
    """The medians of all rounds, and the claims about them."""
    p50, p99 = {}, {}
    for kind, rounds in found.items():
        p50[kind] = statistics.median(one.stats.first_p50 for one in rounds)
        p99[kind] = statistics.median(one.stats.first_p99 for one in rounds)
        goodput = statistics.median(one.stats.goodput for one in rounds)
        spent = sum(one.used.engine_s + one.used.other_s for one in rounds) / sum(len(one.replies) for one in rounds)
        result.rows.append([is_busy, kind, p50[kind] * 1e3, p99[kind] * 1e3, goodput, spent * 1e3])
    where = " beside a busy loop" if is_busy == "yes" else ""
    for name, value in (("p50", p50), ("p99", p99)):
        claim = f"first token with the embedder over without{where}, {name}"
        result.claims.append(Claim(claim, value["with"] / value["without"], "<=", 1.1))
