from __future__ import annotations

from tests.simulation.fresh import PER_KIND, command, first_seed


def pytest_report_header() -> str:
    first = first_seed()
    last = first + PER_KIND - 1
    return f"storms of this commit: seeds {first} to {last} of each kind; to repeat one: {command('KIND', first)}"
