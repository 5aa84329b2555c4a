"""Storms among erasures of single conversations."""

from __future__ import annotations

import random
from functools import partial

from app.delivery.record import CONTROLS
from tests.simulation.faults import FAULTS, expire_log, inflict_some, kill, rebalance, stop, suspend
from tests.simulation.scenario import Conditions, Load, Simulation
from tests.simulation.storms import MILVUS_TROUBLE_S, replayed_turns


def deleting_storm(seed: int) -> Simulation:
    """Deletions of conversations beside most requests, which go on in conversations of the same names, and erasures
    of their users among them; in every other storm also prompts with recalled turns of other conversations.
    """
    chance = random.Random(f"delete {seed}")
    load = Load(
        requests=14,
        users=2,
        conversations=3,
        tokens=chance.choice((2, 8)),
        over_s=8.0,
        cancels=0.05,
        repeats=0.1,
        deletes=0.4,
        erases=chance.choice((0.0, 0.1)),
        tools=chance.choice((0.0, 0.3)),
        recall=0.6 if seed % 2 else 0.0,
        skewed=chance.choice((0.0, 0.1)),
        misplaced=chance.choice((0.0, 0.1)),
        deadly=chance.choice((0.0, 0.1)),
    )
    conditions = Conditions(milvus=seed % 2 == 1 or chance.random() < 0.3, skew=chance.random() < 0.3)
    simulation = Simulation(seed, workers=1 + seed % 3, partitions=1 + seed // 3 % 2, load=load, conditions=conditions)
    inflict_some(simulation, (*FAULTS, suspend, expire_log))
    return simulation


def late_erasures(seed: int) -> Simulation:
    """Erasures that reach their worker late, beside long answers that were asked for meanwhile."""
    chance = random.Random(f"late erasures {seed}")
    load = Load(
        requests=14,
        users=2,
        conversations=chance.choice((0, 2)),
        tokens=chance.choice((4, 12)),
        erases=0.3,
        deletes=chance.choice((0.0, 0.3)),
        repeats=0.1,
        whole=chance.choice((0.0, 0.4)),
    )
    simulation = Simulation(seed, workers=1 + seed % 2, partitions=1 + seed // 2 % 2, load=load)
    simulation.broker.late[CONTROLS] = chance.choice((1.0, 4.0))
    inflict_some(simulation, (kill, suspend, rebalance, stop))
    return simulation


def recalling_deletions(seed: int) -> Simulation:
    """Prompts with recalled turns, while a Milvus, many of whose calls land late, deletes their conversations."""
    load = Load(requests=24, users=1, conversations=4, deletes=0.2, recall=0.9, tokens=2, over_s=40.0)
    simulation = Simulation(seed, workers=1 + seed % 2, load=load, conditions=Conditions(milvus=True))
    assert simulation.milvus is not None
    simulation.milvus.late = 0.4
    simulation.world.after(MILVUS_TROUBLE_S, partial(setattr, simulation.milvus, "late", 0.0))
    inflict_some(simulation, (kill, suspend, rebalance))
    return simulation


def replayed_deletions(seed: int) -> Simulation:
    """As `replayed_turns`, with conversations that are erased instead of their users."""
    return replayed_turns(seed, Load(requests=12, users=2, conversations=3, deletes=0.5, over_s=8.0))
