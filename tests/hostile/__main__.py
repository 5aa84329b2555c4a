"""The long run: `python -m tests.hostile`; prints a line for each kind, without and with a guard."""

from __future__ import annotations

import argparse
import statistics
import tempfile
from pathlib import Path

from app.local.kafka import KafkaCluster
from tests.hostile.http_kinds import HTTP_KINDS
from tests.hostile.record_kinds import RECORD_KINDS
from tests.hostile.run import Kind, Report, Result, hostile_run


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.hostile", description=__doc__)
    parser.add_argument("--only", default="", help="only kinds whose name has this in it")
    parser.add_argument("--guard", choices=("off", "on", "both"), default="both")
    parser.add_argument("--folder", type=Path, help="data and logs stay here; without it they go at the end")
    options = parser.parse_args()
    kinds: list[Kind] = [kind for kind in (*HTTP_KINDS, *RECORD_KINDS) if options.only in kind.name]
    with tempfile.TemporaryDirectory() as place:
        folder = options.folder or Path(place)
        cluster = KafkaCluster(folder / "kafka", 1)
        cluster.start()
        try:
            clean = True
            for guard in {"off": (False,), "on": (True,), "both": (False, True)}[options.guard]:
                own = folder / ("guard" if guard else "plain")
                own.mkdir(parents=True, exist_ok=True)
                print(f"\n{'with' if guard else 'without'} a guard\n{'kind':44} {'outcome':36} {'s':>6} {'good s':>6}")
                report = hostile_run(cluster, own, kinds, show, guard=guard)
                conclude(report)
                clean &= report.clean
        finally:
            cluster.kill()
    return 0 if clean else 1


def show(result: Result) -> None:
    mark = "; ".join(result.faults)[:200]
    print(f"{result.name:44.44} {result.outcome:36.36} {result.seconds:6.2f} {result.good_s:6.2f} {mark}", flush=True)


def conclude(report: Report) -> None:
    failed = sum(bool(result.faults) for result in report.results)
    waits = sorted(report.waits) or [0.0]
    print(f"{len(report.results)} kinds, {failed} failed; {report.ended} workers ended; fences {dict(report.fences)}")
    print(f"{len(report.waits)} good requests: median {statistics.median(waits):.2f} s, longest {waits[-1]:.2f} s")
    for fault in dict.fromkeys(report.faults):
        print(fault[:1000])


if __name__ == "__main__":
    raise SystemExit(main())
