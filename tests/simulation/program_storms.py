"""Storms among answers of programs, whose processes die as workers do."""

from __future__ import annotations

import random

from tests.simulation.desks import SimDesks
from tests.simulation.faults import FAULTS, Fault, expire_log, inflict_some, suspend
from tests.simulation.load import Load
from tests.simulation.programs import MadeAgents, SimPrograms, random_steps
from tests.simulation.scenario import Conditions, Simulation


def program_storm(
    seed: int, faults: tuple[Fault, ...] = (*FAULTS, suspend, expire_log), made: MadeAgents | None = None
) -> Simulation:
    """A storm among answers of programs: of `made`, or of random steps. Their process dies, too, and those of random
    steps are sometimes other ones afterwards. The tail of `tokens` stays: with it the verdict would lose what outcomes
    were made of.
    """
    chance = random.Random(f"programs {seed}")
    conditions = Conditions(
        ttl_s=30 * 86_400.0,
        skew=chance.random() < 0.5,
        sweep_s=chance.choice((0.3, 3.0)),
        sleeps_after_s=chance.choice((0.05, 0.4, 900.0)),
        most_asleep=chance.choice((64, 64, 64, 1)),
        within_s=3600.0,
        programs=("desk",),
    )
    load = Load(
        requests=4 + seed % 5,
        users=chance.choice((1, 2, 3)),
        tokens=chance.choice((2, 8)),
        cancels=0.0,
        stops=chance.choice((0.0, 0.2)),
        repeats=0.2,
        deadlines=chance.choice((0.0, 0.1)),
        erases=chance.choice((0.0, 0.0, 0.1)),
        deletes=chance.choice((0.0, 0.0, 0.1)),
        deadly=chance.choice((0.0, 0.0, 0.1)),
        programs=0.8,
        tools=0.5,
        tools_late_s=chance.choice(((0.0, 0.5), (0.0, 3.0))),
    )
    simulation = Simulation(seed, workers=1 + seed % 3, partitions=1 + seed // 3 % 2, load=load, conditions=conditions)
    simulation.programs = SimPrograms(
        simulation.broker, simulation.partitions, made or random_steps(0), random.Random(f"lives {seed}")
    )
    simulation.desks = SimDesks(seed, simulation.broker, simulation.partitions)
    if chance.random() < 0.4 and made is None:

        def change() -> None:
            if (programs := simulation.programs) is not None:
                programs.has_changed, programs.others, programs.made = True, (programs.made,), random_steps(1)
                programs.die()

        simulation.world.after(chance.choice((2.0, 4.0, 6.0, 9.0)), change)
    simulation.keep_running(30.0)
    inflict_some(simulation, faults)
    return simulation
