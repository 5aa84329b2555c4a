"""Simulate many seeds, and print those that went wrong.

python -m tests.simulation 1000 [first [KIND]]; a kind is the share of erasures, a name of `kinds.py`, as `wide_storm`,
or `all`

python -m tests.simulation --plugin NAME [--settings JSON] [--seeds COUNT]: storms with a plug-in (plugged.py)
"""

from __future__ import annotations

import argparse
import sys
import time

from tests.simulation.kinds import Make, kinds
from tests.simulation.plugged import SEEDS, report
from tests.simulation.storms import storm


def main() -> int:
    if "--plugin" in sys.argv:
        return _of_plugin()
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    first = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    name = sys.argv[3] if len(sys.argv) > 3 else "0"
    wrong = [_wrong(kind, make, first, count) for kind, make in _chosen(name).items()]
    return 1 if any(wrong) else 0


def _of_plugin() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation")
    parser.add_argument("--plugin", required=True, help="its name, as `parley plugins` has it")
    parser.add_argument("--settings", default="{}", help="its table of the policy, as JSON")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="so many storms")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    given = parser.parse_args()
    return report(given.plugin, given.settings, given.seeds, given.first)


def _chosen(name: str) -> dict[str, Make]:
    if name == "all":
        return kinds()
    make = kinds().get(name) or kinds().get(f"{name}_storm")
    return {name: make or (lambda seed: storm(seed, float(name)))}


def _wrong(kind: str, make: Make, first: int, count: int) -> int:
    wrong, steps, began = 0, 0, time.monotonic()
    for seed in range(first, first + count):
        simulation = make(seed)
        try:
            outcome = simulation.run()
        except Exception as error:  # noqa: BLE001 - the other seeds are worth to be tried
            line, clean = f"{error!r}", False
        else:
            line, clean = outcome.line(), outcome.clean
        steps += simulation.world.steps
        if not clean:
            wrong += 1
            print(f"{kind} {seed}: {line}", flush=True)
    print(f"{kind}: {count} seeds, {steps} steps, {time.monotonic() - began:.1f} s, {wrong} wrong", flush=True)
    return wrong


if __name__ == "__main__":
    sys.exit(main())
