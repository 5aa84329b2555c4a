"""Some seeds of every kind of storm that nobody has run before: they follow from the commit. And those that found
something once.

A seed that fails here is the only one of its kind for this commit: put it into found.py before you mend what it found.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.simulation.found import FOUND
from tests.simulation.fresh import PER_KIND, ROOT, command, first_seed
from tests.simulation.kinds import kinds

REPEATED = 1
"""Seeds of each kind that run in two processes."""
RUNS = """
import sys

from tests.simulation.kinds import kinds

for kind, make in kinds().items():
    for seed in range(int(sys.argv[1]), int(sys.argv[2])):
        run = make(seed)
        outcome = run.run()
        lengths = [(at, len(log.entries)) for at, log in sorted(run.broker.logs.items())]
        print(kind, seed, outcome.steps, outcome.line(), lengths)
"""


def judge(kind: str, seed: int) -> None:
    try:
        outcome = kinds()[kind](seed).run()
    except Exception as error:
        error.add_note(f"to repeat it: {command(kind, seed)}")
        raise
    assert outcome.clean, f"{kind} {seed}: {outcome.line()}\nto repeat it: {command(kind, seed)}"


@pytest.mark.parametrize("kind", kinds())
def test_seeds_of_this_commit_leave_no_trace(kind: str) -> None:
    for seed in range(first_seed(), first_seed() + PER_KIND):
        judge(kind, seed)


@pytest.mark.parametrize(("kind", "seed"), [(kind, seed) for kind, seeds in FOUND.items() for seed in seeds])
def test_what_a_seed_found_once_stays_mended(kind: str, seed: int) -> None:
    judge(kind, seed)


def test_every_kind_of_storm_is_there_by_itself() -> None:
    assert {"storm", "returning_storm", "hostile_calm", "killed_four_times", "big_erasure"} <= kinds().keys()
    assert len(kinds()) >= 35


def test_seed_is_the_same_run_in_every_process() -> None:
    """A set of names has another order in each process, and a set of tasks has one by their addresses."""
    call = [sys.executable, "-c", RUNS, str(first_seed()), str(first_seed() + REPEATED)]
    runs = [
        subprocess.Popen(call, stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONHASHSEED": order}, cwd=ROOT)
        for order in ("1", "7")
    ]
    one, other = (run.communicate()[0].splitlines() for run in runs)
    assert one == other
    assert len(one) == REPEATED * len(kinds())
