"""What a fleet costs: `python -m tests.benchmarks.fleet [--only workers,gateways,changes,model] [--short]`.

workers   1, 2 and 4 workers, and 8, 64 and 256 partitions, under the same load: processor time a request and idle
gateways  1, 2 and 4 gateways that share the partitions: processor time a token
changes   what readers notice of a worker that joins, leaves, is killed or is restarted
model     what 10, 100 and 1,000 workers and a million streams need, reckoned from the measured costs (model.py)

Everything runs on this machine: real Kafka, workers with the paced engine, gateways. On two cores that shows what a
part costs and whether the cost grows with the number of other parts. It does not show how fast a large fleet is.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
import tempfile
from pathlib import Path

import psutil

from app.local.kafka import KafkaCluster
from tests.benchmarks.fleet import changes, gateways, model, workers
from tests.benchmarks.fleet.costs import Costs
from tests.benchmarks.machine import machine
from tests.benchmarks.processes import ROOT
from tests.benchmarks.progress import report
from tests.benchmarks.report import markdown, write
from tests.benchmarks.result import Result

PARTS = ("workers", "gateways", "changes", "model")


async def measure(names: list[str], *, short: bool, out: Path, folder: Path) -> list[Result]:
    costs, results = Costs(), []
    for name in names:
        report(f"part {name}")
        place = folder / name
        place.mkdir()
        if name == "model":
            result = model.run(costs)
        else:
            result, costs = await _measured(name, place, costs, short=short)
        results.append(result)
        print(markdown(result), flush=True)
        write(out, machine(), results)
    return results


async def _measured(name: str, folder: Path, costs: Costs, *, short: bool) -> tuple[Result, Costs]:
    """Each part has a Kafka of its own: topics of thousands of partitions cost all clients of a cluster."""
    kafka = KafkaCluster(folder / "kafka")
    await asyncio.to_thread(kafka.start)
    try:
        if name == "workers":
            brokers = [psutil.Process(node.pid) for node in kafka.nodes if node.pid is not None]
            return await workers.run(kafka.broker_setting, brokers, folder, costs, short=short)
        if name == "gateways":
            return await gateways.run(kafka.broker_setting, folder, costs, short=short)
        return await changes.run(kafka.broker_setting, folder, short=short), costs
    finally:
        kafka.kill()


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.fleet",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--only", default=",".join(PARTS), help=f"of {', '.join(PARTS)}")
    parser.add_argument("--short", action="store_true", help="seconds of everything: checks the machinery")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "fleet")
    options = parser.parse_args()
    names = options.only.split(",")
    if unknown := set(names) - set(PARTS):
        parser.error(f"no such part: {', '.join(sorted(unknown))}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # what was started is stopped
    with tempfile.TemporaryDirectory(prefix="parley-fleet-", ignore_cleanup_errors=True) as folder:
        results = asyncio.run(measure(names, short=options.short, out=options.out, folder=Path(folder)))
    report(f"written to {options.out}")
    return int(any(not result.rows for result in results))


if __name__ == "__main__":
    sys.exit(main())
