"""`make bench`: every claim of speed, as a ratio of things measured side by side in one run on this machine.

python -m tests.benchmarks [--only tax,goodput] [--short] [--out build/bench]
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any

from app.local.kafka import KafkaCluster
from tests.benchmarks import random_llama
from tests.benchmarks.machine import machine
from tests.benchmarks.parts import embedder, goodput, growth, loops, peers, pinned, plugins, tables, tax
from tests.benchmarks.processes import ROOT
from tests.benchmarks.progress import report
from tests.benchmarks.report import markdown, write
from tests.benchmarks.result import Result
from tests.benchmarks.rig import Rig
from tests.benchmarks.scale import FULL, SHORT, Scale

DEMO = ROOT / "models" / "demo" / "checkpoint"
Part = Callable[[Rig, Scale], Coroutine[Any, Any, Result]]

# With `-larger`: the bigger Llama in place of the demo model.
PARTS: Mapping[str, Part] = {
    "tax": tax.run,
    "tax-larger": tax.run,
    "goodput": goodput.run,
    "goodput-larger": goodput.run,
    "pinned": pinned.run,
    "pinned-larger": pinned.run,
    "growth": growth.run,
    "tables": tables.run,
    "embedder": embedder.run,
    "plugins": plugins.run,
    "loops": loops.run,
    "peers": peers.run,
    "peers-gemma": peers.run_gemma,
}


async def measure(names: Sequence[str], scale: Scale, out: Path, folder: Path) -> list[Result]:
    about, results = machine(), []
    kafka = KafkaCluster(folder / "kafka")
    kafka.start()
    try:
        larger = random_llama.write(folder / "larger", DEMO) if any("larger" in name for name in names) else DEMO
        server = kafka.broker_setting.removeprefix("kafka://")
        brokers = tuple(node.pid for node in kafka.nodes if node.pid is not None)
        for name in names:
            report(f"part {name}")
            model = str(larger) if name.endswith("-larger") else "demo"
            (folder / name).mkdir()
            try:
                result = await PARTS[name](Rig(server, folder / name, model, brokers), scale)
            except Exception as error:  # noqa: BLE001 - it is reported, and the other parts are measured
                traceback.print_exc()
                result = Result(name, "could not be measured", [], notes=[f"{type(error).__name__}: {error}"])
            result.part = name
            results.append(result)
            print(markdown(result), flush=True)
            write(out, about, results)
            shutil.rmtree(folder / name, ignore_errors=True)
    finally:
        kafka.kill()
    return results


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(PARTS), help=f"of {', '.join(PARTS)}")
    parser.add_argument("--short", action="store_true", help="seconds of everything: checks the machinery")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "bench")
    options = parser.parse_args()
    names = options.only.split(",")
    if unknown := set(names) - set(PARTS):
        parser.error(f"no such part: {', '.join(sorted(unknown))}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # what was started is stopped
    with tempfile.TemporaryDirectory() as folder:
        results = asyncio.run(measure(names, SHORT if options.short else FULL, options.out, Path(folder)))
    report(f"written to {options.out}")
    return int(any(not result.rows and not result.claims for result in results))


if __name__ == "__main__":
    sys.exit(main())
