"""The long run: `python -m tests.fuzz --minutes 15`; prints what came back, and how memory went."""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from pathlib import Path

from app.local.kafka import KafkaCluster
from tests.faults.worker_process import WorkerProcess
from tests.fuzz.run import fuzz, settings_for
from tests.integration.gateway.gateway_process import NO_LIMIT_OF_ERASURES, GatewayProcess


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=15.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--engine", default="torch")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        cluster = KafkaCluster(folder / "kafka", 1)
        cluster.start()
        try:
            settings = settings_for(cluster, folder, engine=options.engine)
            with (
                WorkerProcess(settings, folder / "worker.log") as worker,
                GatewayProcess(settings, folder / "gateway.log", constants=NO_LIMIT_OF_ERASURES) as gateway,
            ):
                worker.wait_owning(settings.partitions)
                found = asyncio.run(fuzz(worker, gateway, options.minutes * 60, options.seed))
        finally:
            cluster.kill()
    for what, count in sorted(found.replies.items()):
        print(f"{what:24} {count:8}")
    print("memory in MiB, gateway and worker:", " ".join(f"{one:.0f}/{other:.0f}" for one, other in found.memory))
    print("longest wait for the loop in s, gateway and worker: {:.2f} {:.2f}".format(*found.longest_s))
    for fault in found.faults:
        print(fault)
    return 1 if found.faults else 0


if __name__ == "__main__":
    raise SystemExit(main())
