"""How many threads compute a step follows what steps take, on a clock of the test's own."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from models.compute.attention import dense
from models.engine.threads import FIRST_REST_S, LONGEST_REST_S, MOST_WAITS, PAIRS, Threads
from models.weights.int8 import int8_blocks, int8_product, onednn_int8_blocks, onednn_why_not, why_not
from models.weights.matrix import multiply, prepack

STEP_S = 0.05
BRIEF = 2 * PAIRS + 4
"""Steps of a comparison, and a few."""


class Machine:
    """`times` says how long a step takes by its threads, and `works` how much of it they work."""

    def __init__(self, count: int, few: int = 1, many: int = 2) -> None:
        self.now = self.worked = 0.0
        self.at = 0
        self.times: dict[int, float] = {few: 2 * STEP_S, many: STEP_S}
        self.works = 1.0
        self.used: list[int] = []
        self.threads = Threads(few, many, count, self._apply, lambda: self.now, lambda: self.worked)

    def _apply(self, count: int) -> None:
        self.at = count

    def step(self, tokens: int = 8) -> None:
        self.threads.begin()
        self.used.append(self.at)
        self.now += self.times[self.at]
        self.worked += self.times[self.at] * self.works
        self.threads.end(tokens)

    def steps_until(self, holds: Callable[[], bool], most: int = 20_000) -> int:
        for number in range(most):
            if holds():
                return number
            self.step()
        raise AssertionError("it never holds")


def test_two_threads_that_are_faster_compute() -> None:
    machine = Machine(1)
    assert machine.steps_until(lambda: machine.threads.count == 2) * 2 * STEP_S >= FIRST_REST_S / 2
    assert machine.used[-2:] != [1, 1]


def test_a_start_waits_for_no_other_core() -> None:
    machine = Machine(2)
    machine.threads.prepare()
    assert machine.at == 1
    machine.step()
    assert machine.used == [2]


def test_a_machine_that_gets_busy_is_noticed_by_steps_that_wait() -> None:
    machine = Machine(2)
    machine.steps_until(lambda: machine.now > LONGEST_REST_S * 3)  # the next comparison is far away
    assert machine.threads.count == 2
    machine.times, machine.works = {1: 2 * STEP_S, 2: 50 * STEP_S}, 0.1
    assert machine.steps_until(lambda: machine.threads.count == 1) <= MOST_WAITS + BRIEF


def test_more_threads_are_tried_ever_less_often_where_they_are_no_faster() -> None:
    machine = Machine(1)
    machine.times = {1: STEP_S, 2: 0.95 * STEP_S}  # faster, but not worth a core
    machine.steps_until(lambda: machine.now > 10 * LONGEST_REST_S)
    assert machine.threads.count == 1
    late = machine.used[len(machine.used) // 2 :]
    assert 0 < late.count(2) < len(late) / 100


def test_a_step_that_takes_far_too_long_ends_the_comparison() -> None:
    machine = Machine(1)
    machine.times = {1: STEP_S, 2: 100 * STEP_S}
    machine.steps_until(lambda: machine.now > 10.0)
    assert machine.threads.count == 1
    assert machine.used.count(2) <= 4


def test_each_step_is_compared_with_one_of_its_size() -> None:
    """Answers alone and beside a prompt take turns in a service."""
    for threads, share in {1: 1.0, 2: 0.8}.items():
        machine = Machine(1)
        for number in range(400):
            tokens = 76 if number % 3 == 0 else 32
            machine.times = {1: STEP_S * tokens / 32, 2: STEP_S * tokens / 32 * share}
            machine.step(tokens)
        assert machine.threads.count == threads


def test_where_no_steps_are_alike_nothing_changes() -> None:
    machine = Machine(1)
    for number in range(2000):
        machine.step(tokens=2 ** (number % 20))
    assert machine.threads.count == 1
    assert machine.used.count(2) < 400


def test_what_is_set_stays() -> None:
    machine = Machine(2, few=2, many=2)
    machine.times = {2: STEP_S}
    for _ in range(1000):
        machine.step()
    assert set(machine.used) == {2}


PRODUCTS: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "int8": lambda rows, weight: int8_product(rows, [], int8_blocks(weight), None),
    "int8 by oneDNN": lambda rows, weight: int8_product(rows, onednn_int8_blocks(weight), [], None),
    "packed": lambda rows, weight: multiply(rows, prepack(weight), None),
    "attention": lambda rows, weight: dense(
        rows.double().view(-1, 2, rows.shape[1] // 2),
        weight.double().view(1, 2, -1, rows.shape[1] // 2),
        weight.double().view(1, 2, -1, rows.shape[1] // 2),
        torch.zeros(1, 1, len(rows), weight.shape[0]).double(),
        len(rows),
        0.1,
    ).float(),
}


@pytest.mark.parametrize("rows", [1, 8, 33, 300])
@pytest.mark.parametrize("name", PRODUCTS)
def test_threads_change_no_bit(name: str, rows: int) -> None:
    if "int8" in name and (reason := why_not(torch.device("cpu"))):
        pytest.skip(reason)
    if "oneDNN" in name and (reason := onednn_why_not()):
        pytest.skip(reason)
    chance = torch.Generator().manual_seed(3)
    given = torch.randn(rows, 640, generator=chance)
    weight = torch.randn(2048, 640, generator=chance)
    before, found = torch.get_num_threads(), []
    try:
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            try:
                found.append(PRODUCTS[name](given, weight))
            except (RuntimeError, AttributeError) as error:
                pytest.skip(f"this CPU or torch has no such products: {error}")
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(found[0], other) for other in found[1:])
