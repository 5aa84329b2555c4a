from __future__ import annotations

import sys

import pytest

from models.embedder.spare_time import LEAST, LONGEST_REST_S, SpareTime, idle_s

CORES = 4  # of which one is the reserve


class Machine:
    def __init__(self) -> None:
        self.now = self.idle = self.own = 0.0
        self.spare = SpareTime(lambda: self.idle, CORES, lambda: self.own, lambda: self.now)

    def rest_after(self, passed: float, worked: float, idle: float) -> float:
        """`idle` is in cores."""
        self.now += passed
        self.own += worked
        self.idle += idle * passed
        return self.spare.rest_s()


@pytest.mark.parametrize(
    ("idle", "rest"), [(3.0, 0.0), (0.5, pytest.approx(0.1)), (0.0, pytest.approx(0.1 / LEAST - 0.1))]
)
def test_thread_rests_until_it_took_no_more_than_is_idle_beyond_the_reserve(idle: float, rest: float) -> None:
    machine = Machine()
    worked = 0.1
    assert machine.rest_after(0.1, worked, idle) == rest


def test_rest_counts_toward_the_next_interval() -> None:
    machine = Machine()
    rest = machine.rest_after(0.1, 0.1, idle=0.5)
    assert machine.rest_after(rest + 0.1, 0.1, idle=1.0) == 0


def test_long_work_rests_for_a_bounded_time() -> None:
    assert Machine().rest_after(10, 10, idle=0) == LONGEST_REST_S


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_idle_time_of_this_machine_advances_no_faster_than_its_cores() -> None:
    before = idle_s()
    assert 0 < before <= idle_s()
