"""The long run: `python -m tests.faults --kills 200`; prints what was injected how often, and what was counted."""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
import statistics
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

from app.local.kafka import KafkaCluster
from app.settings import Settings
from app.topics import create_topics
from tests.faults.arena import Arena, arena
from tests.faults.faults import KILLS, OTHERS, Fault
from tests.faults.verdict import FAULTS, Verdict


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--kills", type=int, default=20, help="how often a worker is killed")
    parser.add_argument("--others", type=int, default=1, help="how often each other fault is inflicted")
    parser.add_argument("--only", default="", help="only the other faults whose name has this in it")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--brokers", type=int, default=1)
    parser.add_argument("--per-second", type=float, default=5.0, help="requests")
    return parser.parse_args()


def schedule(place: Arena, options: argparse.Namespace) -> list[Fault]:
    weights, kinds = zip(*KILLS, strict=True)
    faults: list[Fault] = place.random.choices(kinds, weights, k=options.kills)
    others = [fault for fault in OTHERS if options.only in fault.name] * options.others
    for fault in others:
        faults.insert(place.random.randint(0, len(faults)), fault)
    return faults


async def run(options: argparse.Namespace, folder: Path) -> int:
    cluster = KafkaCluster(folder / "kafka", options.brokers)
    await asyncio.to_thread(cluster.start)
    try:
        settings = Settings(
            _env_file=None, broker=cluster.broker_setting, topic_prefix="faults-", app_id="faults", engine="paced",
            embedder="none", paced_tokens_per_s=10.0, partitions=4, replication=min(3, options.brokers),
        )  # fmt: skip
        await create_topics(settings)
        began, inflicted = time.monotonic(), Counter[str]()
        async with arena(
            cluster, settings, folder / "workers", workers=options.workers, per_s=options.per_second
        ) as place:
            faults = schedule(place, options)
            for number, fault in enumerate(faults, start=1):
                await fault.inflict(place)
                inflicted[fault.name] += 1
                await place.speaking()
                tell(f"{number}/{len(faults)} {fault.name}; {place.load.sent} sent, {len(place.watch.ended)} ended")
        verdict = await place.verdict()
        report(inflicted, verdict, place, time.monotonic() - began)
        return 0 if verdict.clean and not place.exits else 1
    finally:
        cluster.kill()


def report(inflicted: Counter[str], verdict: Verdict, place: Arena, seconds: float) -> None:
    tell("\n| fault | times |\n|---|---|\n" + "\n".join(f"| {name} | {n} |" for name, n in sorted(inflicted.items())))
    tell(f"\n{verdict.line()}; {seconds:.0f} s")
    tell("\n| counted | |\n|---|---|\n" + "\n".join(f"| {name} | {len(getattr(verdict, name))} |" for name in FAULTS))
    tell("\nsilence of an answer that another owner resumed: " + spread(place.watch.silences))
    tell("pause of an answer that its owner kept: " + spread(place.watch.pauses))
    if place.exits:
        tell(f"workers that ended unasked: {dict(place.exits)}")


def spread(seconds: list[float]) -> str:
    if not seconds:
        return "none"
    ordered = sorted(seconds)
    p99 = ordered[int(0.99 * (len(ordered) - 1))]
    return f"{len(ordered)}, p50 {statistics.median(ordered):.2f} s, p99 {p99:.2f} s, max {ordered[-1]:.2f} s"


def tell(line: str) -> None:
    print(line, flush=True)


def main() -> int:
    # The clients of the load and the watch are loud about brokers that go away, which is the point.
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with (
        tempfile.TemporaryDirectory(prefix="parley-faults-", ignore_cleanup_errors=True) as folder,
        suppress(KeyboardInterrupt),
    ):
        return asyncio.run(run(arguments(), Path(folder)))
    return 130


if __name__ == "__main__":
    sys.exit(main())
