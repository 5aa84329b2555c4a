"""Simulate many seeds, and print those that went wrong.

python -m tests.simulation 1000 [first [KIND]]; a kind is the share of erasures, a name of `kinds.py`, as `wide_storm`,
or `all`

python -m tests.simulation --plugin NAME [--settings JSON] [--prompt TEXT] [--seeds COUNT]: with a plug-in (plugged.py)
python -m tests.simulation --agent FILE [--prompt TEXT] [--seeds COUNT]: storms with agents (plugged_agents.py)
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from tests.simulation.kinds import Make, kinds
from tests.simulation.plugged import SEEDS, report
from tests.simulation.plugged_agents import report_agents
from tests.simulation.storms import storm


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.simulation", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("count", nargs="?", type=int, default=1000, help="so many seeds of Parley's own storms")
    parser.add_argument("first_seed", nargs="?", type=int, default=0)
    parser.add_argument("kind", nargs="?", default="0")
    parser.add_argument("--plugin", help="storms with a plug-in: its name, as `parley plugins` has it")
    parser.add_argument("--settings", default="{}", help="its table of the policy, as JSON")
    parser.add_argument("--agent", type=Path, help="storms with the agents of this Python file")
    parser.add_argument("--prompt", help="what users say to them, or to a plug-in")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="so many storms with the plug-in or the agents")
    parser.add_argument("--first", type=int, default=0, help="the first seed of these")
    given = parser.parse_args()
    if given.plugin is not None:
        return report(given.plugin, given.settings, given.seeds, given.first, given.prompt)
    if given.agent is not None:
        return report_agents(given.agent, given.prompt, given.seeds, given.first)
    wrong = [_wrong(kind, make, given.first_seed, given.count) for kind, make in _chosen(given.kind).items()]
    return 1 if any(wrong) else 0


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
