"""The largest requests hold the event loop for some milliseconds, whatever is in them."""

from __future__ import annotations

import pytest

from tests.benchmarks.guard_loop import SHAPES, pass_through, run_with

MOST_S = 0.25
"""Of processor time: some 50 times what a step takes, and a twentieth of what searching value by value takes."""


TRIES = 3
"""Of which one counts: in a process with many tests, the garbage collector's steps are longer than those looked for."""


@pytest.mark.parametrize("name", SHAPES)
async def test_hiding_values_does_not_hold_the_loop(name: str) -> None:
    for _ in range(TRIES):
        longest = await pass_through(*run_with(SHAPES[name]))
        if 0 < longest.cpu_s < MOST_S:
            return
    pytest.fail(f"it held the loop for {longest.cpu_s} s")
