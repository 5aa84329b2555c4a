"""Steady load for a long time: does memory grow, do file handles leak, does the first token get later?

    python -m tests.benchmarks.soak --minutes 30 [--rate 12] [--out build/soak]

Users come and go and their conversations expire within the run (TTL 2 minutes), so what should level off does. The
slope is a least-squares line through the second half, when caches are full: RocksDB's write buffers, 32 MB of all
partitions together, take some 10,000 requests.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import statistics
import sys
import tempfile
from pathlib import Path

import msgspec

from app.local.kafka import KafkaCluster
from tests.benchmarks.load import Load
from tests.benchmarks.machine import machine
from tests.benchmarks.processes import ROOT
from tests.benchmarks.progress import report
from tests.benchmarks.report import markdown, write
from tests.benchmarks.result import Claim, Plot, Result, Series
from tests.benchmarks.rig import Rig
from tests.benchmarks.stats import Figures, stats
from tests.benchmarks.systems import Parley

SLICE_S = 10.0
TTL_S = 120.0
FLAT_MB_PER_HOUR = 20.0


class Moment(msgspec.Struct, frozen=True):
    """What was seen at the end of one slice; `minute` counts from the start of the load."""

    minute: float
    megabytes: float
    files: int
    cpu_s: float
    figures: Figures


async def watch(parley: Parley, minutes: float, rate: float) -> list[Moment]:
    load = Load(seconds=SLICE_S, rate=rate, max_tokens=24, users=200)
    moments: list[Moment] = []
    while len(moments) * SLICE_S < minutes * 60:
        before = parley.used()
        replies = await parley.run(msgspec.structs.replace(load, seed=len(moments), people=f"u{len(moments) // 30}"))
        now = parley.used()
        spent = now.since(before)
        figures = stats(replies, SLICE_S, SLICE_S)
        minute = (len(moments) + 1) * SLICE_S / 60
        moments.append(Moment(minute, now.memory / 1e6, now.files, spent.engine_s + spent.other_s, figures))
        if len(moments) % 6 == 0:
            report(f"{minute:.0f} min: {moments[-1].megabytes:.0f} MB, {now.files} files, {figures.failed} failed")
    return moments


def result(moments: list[Moment], rate: float) -> Result:
    half = moments[len(moments) // 2 :]
    hours = [moment.minute / 60 for moment in half]
    slope = statistics.linear_regression(hours, [moment.megabytes for moment in half]).slope if len(half) > 1 else 0.0
    files = statistics.linear_regression(hours, [moment.files for moment in half]).slope if len(half) > 1 else 0.0
    asked = sum(moment.figures.requests for moment in moments)
    failed = sum(moment.figures.failed for moment in moments)
    found = Result("soak", f"{moments[-1].minute:.0f} minutes at {rate:g} requests/s", COLUMNS)
    for moment in moments[:: max(1, len(moments) // 12)]:
        figures = moment.figures
        found.rows.append(
            [moment.minute, moment.megabytes, moment.files, figures.first_p50 * 1e3, figures.first_p99 * 1e3]
        )
    found.claims = [
        Claim("memory, MB an hour, second half", slope, "<=", FLAT_MB_PER_HOUR),
        Claim("open files, an hour, second half", files, "<=", 1.0),
        Claim(f"requests of {asked} that failed", failed, "<=", 0),
    ]
    minutes: list[float | str] = [moment.minute for moment in moments]
    found.plots = [
        Plot("Resident memory", "minutes", "MB", [Series("worker", minutes, [one.megabytes for one in moments])]),
        Plot("Open files", "minutes", "files", [Series("worker", minutes, [float(one.files) for one in moments])]),
        Plot(
            "First token",
            "minutes",
            "ms",
            [
                Series("p50", minutes, [one.figures.first_p50 * 1e3 for one in moments]),
                Series("p99", minutes, [one.figures.first_p99 * 1e3 for one in moments]),
            ],
        ),
    ]
    return found


COLUMNS = ["minute", "MB", "files", "first p50 ms", "p99 ms"]


async def soak(minutes: float, rate: float, out: Path, folder: Path) -> Result:
    about = machine()
    kafka = KafkaCluster(folder / "kafka")
    kafka.start()
    try:
        rig = Rig(kafka.broker_setting.removeprefix("kafka://"), folder)
        async with Parley(rig, conversation_ttl_s=TTL_S, dedup_s=TTL_S) as parley:
            found = result(await watch(parley, minutes, rate), rate)
    finally:
        kafka.kill()
    print(markdown(found), flush=True)
    write(out, about, [found])
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--rate", type=float, default=12.0, help="requests a second")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "soak")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # what was started is stopped
    with tempfile.TemporaryDirectory() as folder:
        found = asyncio.run(soak(options.minutes, options.rate, options.out, Path(folder)))
    return int(not all(claim.kept for claim in found.claims))


if __name__ == "__main__":
    sys.exit(main())
