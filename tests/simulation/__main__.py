"""Simulate many seeds, and print those that went wrong.

python -m tests.simulation 1000 [first [KIND]]; a kind is the share of erasures, or a name of `KINDS`
"""

from __future__ import annotations

import sys
import time

from tests.simulation.faults import corrupt_storm, crowded_storm, routed_storm, storm, tool_storm, wide_storm
from tests.simulation.hostile_storms import hostile_calm, hostile_index, hostile_storm, killed_thrice

KINDS = {
    "hostile": hostile_storm,
    "calm": hostile_calm,
    "index": hostile_index,
    "killed": killed_thrice,
    "wide": wide_storm,
    "corrupt": corrupt_storm,
    "crowded": crowded_storm,
    "tools": tool_storm,
    "routed": routed_storm,
}


def main() -> int:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    first = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    kind = sys.argv[3] if len(sys.argv) > 3 else "0"
    wrong, steps, began = 0, 0, time.monotonic()
    for seed in range(first, first + count):
        simulation = KINDS[kind](seed) if kind in KINDS else storm(seed, float(kind))
        try:
            outcome = simulation.run()
        except Exception as error:  # noqa: BLE001 - the other seeds are worth to be tried
            line, clean = f"{error!r}", False
        else:
            line, clean = outcome.line(), outcome.clean
        steps += simulation.world.steps
        if not clean:
            wrong += 1
            print(f"seed {seed}: {line}", flush=True)
    print(f"{count} seeds, {steps} steps, {time.monotonic() - began:.1f} s, {wrong} wrong")
    return 1 if wrong else 0


sys.exit(main())
