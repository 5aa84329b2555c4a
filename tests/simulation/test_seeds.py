"""Some seeds of every kind of storm that nobody has run before: they follow from the commit. And those that found
something once.

A seed that fails here is the only one of its kind for this commit: put it into found.py before you mend what it found.
"""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache

import pytest

from tests.simulation.found import FOUND
from tests.simulation.fresh import PER_KIND, ROOT, command, first_seed
from tests.simulation.kinds import kinds

RUNS = """
import sys

from tests.simulation.kinds import kinds
from tests.simulation.test_seeds import judge

for kind in kinds():
    print(judge(kind, int(sys.argv[1])))
"""


@cache
def judge(kind: str, seed: int) -> str:
    """What the run was."""
    simulation = kinds()[kind](seed)
    try:
        outcome = simulation.run()
    except Exception as error:
        error.add_note(f"to repeat it: {command(kind, seed)}")
        raise
    assert outcome.clean, f"{kind} {seed}: {outcome.line()}\nto repeat it: {command(kind, seed)}"
    lengths = [(at, len(log.entries)) for at, log in sorted(simulation.broker.logs.items())]
    return f"{kind} {seed} {outcome.steps} {outcome.line()} {lengths}"


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
    call = [sys.executable, "-c", RUNS, str(first_seed())]
    order = "1" if os.environ.get("PYTHONHASHSEED") == "7" else "7"
    other = subprocess.check_output(call, text=True, env=os.environ | {"PYTHONHASHSEED": order}, cwd=ROOT)
    assert other.splitlines() == [judge(kind, first_seed()) for kind in kinds()]
