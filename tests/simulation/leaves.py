"""Leaves of the group in a worker's name (app/watch): for a dead one, early, late or doubled, or for one that lives.

A member id belongs to one life, here to one `Process`: a leave that comes late finds no member.
"""

from __future__ import annotations

from functools import partial

from tests.simulation.faults import FAULTS, kill, suspend
from tests.simulation.process import Process
from tests.simulation.scenario import Simulation
from tests.simulation.storms import storm

_DELAYS_S = (0.0, 0.03, 0.03, 0.5, 3.0, 8.0)
"""From at once to behind the session and the next life."""


def die(simulation: Simulation, process: Process) -> None:
    """Kill -9, and its watcher leaves once or twice."""
    kill(simulation, process)
    leave(simulation, process)


def leave(simulation: Simulation, process: Process) -> None:
    """A leave for a worker, whatever becomes of it meanwhile."""
    for _ in range(simulation.random.randint(1, 2)):
        delay_s = simulation.random.choice(_DELAYS_S)
        simulation.world.after(delay_s, partial(simulation.group.give_up, process))


def suspend_and_leave(simulation: Simulation, process: Process) -> None:
    """It wakes up among its successors, long before its session would have ended."""
    suspend(simulation, process)
    leave(simulation, process)


LEAVES = (*FAULTS, die, die, die, leave, leave, suspend_and_leave)


def leaving_storm(seed: int) -> Simulation:
    return storm(seed, faults=LEAVES)


def false_leaves(seed: int) -> Simulation:
    """No worker dies: it is left for all the same."""
    return storm(seed, faults=(leave,))
