"""The long run: `python -m tests.faults --kills 200`; prints what was injected how often, and what was counted."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import random
import signal
import statistics
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from app.kafka.topics import create_topics
from app.local.kafka import KafkaCluster
from app.local.milvus import MilvusNode
from app.settings import Settings
from tests.faults.arena import Arena, arena
from tests.faults.deaths import WAYS, Deaths
from tests.faults.faults import BrokerKilled
from tests.faults.milvus_faults import wrong_rows
from tests.faults.moderation_verdict import wrong_answers
from tests.faults.stages import (
    BUSY,
    EIGHT_BITS,
    EXPIRY,
    PACED,
    REAL,
    ROLLING,
    SLEEPING,
    TOOLS,
    Stage,
    with_judge,
    with_memories,
    with_milvus,
)
from tests.faults.unslept import Unslept
from tests.faults.verdict import FAULTS, Verdict


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--kills", type=int, default=20, help="how often a worker with the paced engine is killed")
    parser.add_argument("--real", type=int, default=20, help="how often one with the demo model is killed")
    parser.add_argument("--others", type=int, default=1, help="how often each other fault is inflicted")
    parser.add_argument(
        "--stages",
        default="paced,expiry,tools,busy,sleeping,routes,guard,rolling,deaths,real,eight,history",
        help="of these parts",
    )
    parser.add_argument("--only", default="", help="only the other faults whose name has one of these in it, with `,`")
    parser.add_argument("--away", type=float, default=70.0, help="seconds of the longest outage of a broker")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--brokers", type=int, default=1)
    parser.add_argument("--seed", type=int, default=7, help="of what is inflicted when")
    parser.add_argument("--minutes", type=float, default=1e9, help="no fault is begun after so long in a part")
    parser.add_argument("--folder", type=Path, help="data and logs stay here; without it they go at the end")
    return parser.parse_args()


async def run(options: argparse.Namespace, folder: Path) -> int:
    cluster = KafkaCluster(folder / "kafka", options.brokers)
    await asyncio.to_thread(cluster.start)
    try:
        clean = []
        if "paced" in options.stages:
            stage = replace(PACED, others=(*PACED.others, BrokerKilled(options.away)))
            clean.append(await run_stage(stage, options.kills, cluster, options, folder))
        for name, stage in (("expiry", EXPIRY), ("tools", TOOLS), ("busy", BUSY), ("sleeping", SLEEPING)):
            if name in options.stages:
                clean.append(await run_stage(stage, options.kills, cluster, options, folder))
        if "routes" in options.stages:
            async with with_memories(folder / "memories") as stage:
                clean.append(await run_stage(stage, options.kills, cluster, options, folder))
        if "guard" in options.stages:
            async with with_judge() as stage:
                clean.append(await run_stage(stage, options.kills, cluster, options, folder))
        if "rolling" in options.stages:
            clean.append(await run_stage(ROLLING, 0, cluster, options, folder))
        if "real" in options.stages:
            clean.append(await run_stage(REAL, options.real, cluster, options, folder))
        if "eight" in options.stages:
            clean.append(await run_stage(EIGHT_BITS, options.real, cluster, options, folder))
        if "deaths" in options.stages:
            clean.append(await count_deaths(options.kills, cluster, options, folder))
        if "history" in options.stages:
            async with with_milvus(folder / "milvus") as (stage, node):
                clean.append(await run_stage(stage, 0, cluster, options, folder, node))
        return 0 if all(clean) else 1
    finally:
        cluster.kill()


async def run_stage(
    stage: Stage,
    kills: int,
    cluster: KafkaCluster,
    options: argparse.Namespace,
    folder: Path,
    node: MilvusNode | None = None,
) -> bool:
    """Whether nothing was wrong."""
    faults = stage.schedule(random.Random(options.seed), kills=kills, others=options.others, only=options.only)
    if not faults:
        return True
    prefix = f"{stage.name.replace(' ', '-')}-"
    values = {"topic_prefix": prefix, "app_id": f"{prefix}faults", "embedder": "none", **stage.settings}
    settings = Settings(
        _env_file=None,
        broker=cluster.broker_setting,
        partitions=4,
        replication=min(3, options.brokers),
        **values,  # type: ignore[arg-type]
    )
    await create_topics(settings)
    began, inflicted = time.monotonic(), Counter[str]()
    async with arena(
        cluster,
        settings,
        folder / prefix,
        workers=options.workers,
        per_s=stage.per_s,
        users=stage.users,
        skew_s=stage.skew_s,
        ask=stage.ask,
        policies=stage.policies,
        always=stage.always,
        approvals=stage.approvals,
        rows=None if node is None else partial(wrong_rows, settings, node),
    ) as place:
        place.random.seed(options.seed)
        for number, fault in enumerate(faults, start=1):
            await fault.inflict(place)
            inflicted[fault.name] += 1
            await place.speaking()
            if time.monotonic() - began > 60 * options.minutes:
                break
            show(f"{number}/{len(faults)} {fault.name}; {place.load.sent} sent, {len(place.watch.ended)} ended")
    verdict = await place.verdict()
    if stage is SLEEPING:
        again = await Unslept(settings, folder / f"{prefix}again", stage.always).wrong()
        verdict.changed += again.changed
        show(f"\n{again.asked} answers that slept were asked for again where nothing sleeps")
    if stage.moderated:
        verdict.wrong_plans += await wrong_answers(settings)
    show(f"\n## {stage.name}")
    report(inflicted, verdict, place, time.monotonic() - began)
    return verdict.clean and not place.exits


async def count_deaths(kills: int, cluster: KafkaCluster, options: argparse.Namespace, folder: Path) -> bool:
    """Whether nothing was wrong."""
    values = {"engine": "paced", "paced_tokens_per_s": 20.0, "embedder": "none", "topic_prefix": "deaths-"}
    settings = Settings(_env_file=None, broker=cluster.broker_setting, partitions=4, **values)  # type: ignore[arg-type]
    await create_topics(settings)
    deaths, began = Deaths(settings, folder / "deaths", options.seed), time.monotonic()
    verdict = await deaths.run(kills)
    show(f"\n## Deaths of a process, {kills} each; load average {os.getloadavg()[1]:.0f}\n")
    show("| PARLEY_WATCH | pause of an answer | longest of a kill |\n|---|---|---|")
    for way in WAYS:
        show(f"| {way} | {spread(deaths.pauses[way])} | {spread(deaths.longest[way])} |")
    show(f"\n{verdict.line()}; {time.monotonic() - began:.0f} s")
    return verdict.clean


def report(inflicted: Counter[str], verdict: Verdict, place: Arena, seconds: float) -> None:
    show("\n| fault | times |\n|---|---|\n" + "\n".join(f"| {name} | {n} |" for name, n in sorted(inflicted.items())))
    show(f"\n{verdict.line()}; {seconds:.0f} s")
    show("\n| counted | |\n|---|---|\n" + "\n".join(f"| {name} | {len(getattr(verdict, name))} |" for name in FAULTS))
    show("\nsilence of an answer that another owner resumed: " + spread(place.watch.silences))
    show("pause of an answer that its owner kept: " + spread(place.watch.pauses))
    if place.exits:
        show(f"workers that ended unasked: {dict(place.exits)}")


def spread(seconds: list[float]) -> str:
    if not seconds:
        return "none"
    ordered = sorted(seconds)
    p99 = ordered[int(0.99 * (len(ordered) - 1))]
    return f"{len(ordered)}, p50 {statistics.median(ordered):.2f} s, p99 {p99:.2f} s, max {ordered[-1]:.2f} s"


def show(line: str) -> None:
    print(line, flush=True)


def main() -> int:
    # The clients of the load and the watch are loud about brokers that go away, which is the point.
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    options = arguments()
    with (
        tempfile.TemporaryDirectory(prefix="parley-faults-", ignore_cleanup_errors=True) as folder,
        suppress(KeyboardInterrupt),
    ):
        return asyncio.run(run(options, options.folder or Path(folder)))
    return 130


if __name__ == "__main__":
    sys.exit(main())
