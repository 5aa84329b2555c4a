"""Storms among answers that fall asleep while they wait for tools, and what their topics and tables must hold.

Results come seconds or minutes later, or after days in which no worker runs. Several answers of one conversation sleep
at once, and others are asked meanwhile.
"""

from __future__ import annotations

import random
from dataclasses import replace
from functools import partial

from app.policy.agents import AgentRules
from app.policy.tools import ApproveRules
from tests.simulation.faults import FAULTS, MORE_FAULTS, Fault, expire_log, inflict_some, suspend
from tests.simulation.load import Load
from tests.simulation.process import Process
from tests.simulation.scenario import Conditions, Simulation

_DAY_S = 86_400.0


def nobody_works(simulation: Simulation, _process: Process) -> None:
    """All workers are away for long: for hours, or for two days."""
    away = simulation.random.choice((60.0, 6 * 3600.0, 2 * _DAY_S))
    for process in simulation.alive:
        process.kill()
        simulation.world.after(away, partial(simulation.start_again, process.name))
    simulation.keep_running(away + simulation.world.now - simulation.began + 20.0)


def _beset(
    seed: int, load: Load, faults: tuple[Fault, ...], conditions: Conditions, chance: random.Random
) -> Simulation:
    """Among faults, three in ten times that of no worker at all."""
    simulation = Simulation(seed, workers=1 + seed % 3, partitions=1 + seed // 3 % 2, load=load, conditions=conditions)
    inflict_some(simulation, (*faults, nobody_works) if chance.random() < 0.3 else faults)
    return simulation


def sleeping_storm(seed: int, faults: tuple[Fault, ...] = MORE_FAULTS) -> Simulation:
    """A storm among answers that sleep after some tenths of a second."""
    chance = random.Random(f"sleeping {seed}")
    conditions = Conditions(
        ttl_s=30 * _DAY_S,
        skew=chance.random() < 0.5,
        sweep_s=chance.choice((0.3, 3.0)),
        sleeps_after_s=chance.choice((0.05, 0.4, 1.5)),
    )
    load = Load(
        requests=5 + seed % 8,
        users=chance.choice((1, 2, 3)),
        tokens=chance.choice((2, 8)),
        cancels=0.1,
        repeats=0.2,
        deadlines=chance.choice((0.0, 0.2)),
        erases=chance.choice((0.0, 0.0, 0.2)),
        deletes=chance.choice((0.0, 0.0, 0.2)),
        conversations=chance.choice((0, 2)),
        skewed=chance.choice((0.0, 0.3)),
        deadly=chance.choice((0.0, 0.0, 0.1)),
        tools=0.7,
        tool_times_ms=(2000, 6000, 90_000),
        tools_late_s=chance.choice(((0.0, 0.5), (0.0, 3.0), (1.0, 20.0, 70.0))),
        silent=0.1,
    )
    return _beset(seed, load, faults, conditions, chance)


def approval_storm(seed: int, faults: tuple[Fault, ...] = MORE_FAULTS) -> Simulation:
    """A storm among answers whose calls wait for somebody at a desk (desks.py)."""
    chance = random.Random(f"approvals {seed}")
    rules = ApproveRules(
        by="desk", within_s=chance.choice((1.0, 6.0, 90.0)), otherwise=chance.choice(("rejected", "approved"))
    )
    conditions = Conditions(
        ttl_s=30 * _DAY_S,
        skew=chance.random() < 0.5,
        sweep_s=chance.choice((0.3, 3.0)),
        sleeps_after_s=chance.choice((0.05, 1.5, 900.0)),
        approvals=rules,
    )
    load = Load(
        requests=5 + seed % 8,
        users=chance.choice((1, 2, 3)),
        tokens=chance.choice((2, 8)),
        repeats=0.2,
        deadlines=chance.choice((0.0, 0.2)),
        erases=chance.choice((0.0, 0.0, 0.1)),
        conversations=chance.choice((0, 2)),
        deadly=chance.choice((0.0, 0.0, 0.1)),
        tools=0.8,
        tool_times_ms=(2000, 6000, 90_000),
        tools_late_s=chance.choice(((0.0, 0.5), (0.0, 3.0), (1.0, 20.0))),
    )
    return _beset(seed, load, faults, conditions, chance)


def timer_storm(seed: int, faults: tuple[Fault, ...] = MORE_FAULTS) -> Simulation:
    """A storm among requests that are not answered before a time: some seconds, minutes or days later."""
    chance = random.Random(f"timers {seed}")
    conditions = Conditions(
        ttl_s=30 * _DAY_S,
        skew=chance.random() < 0.5,
        sweep_s=chance.choice((0.3, 3.0)),
        sleeps_after_s=chance.choice((0.05, 0.4)),
    )
    load = Load(
        requests=5 + seed % 8,
        users=chance.choice((1, 2, 3)),
        tokens=chance.choice((2, 8)),
        cancels=chance.choice((0.1, 0.3)),
        repeats=0.3,
        deadlines=chance.choice((0.0, 0.2)),
        erases=chance.choice((0.0, 0.0, 0.2)),
        deletes=chance.choice((0.0, 0.0, 0.2)),
        conversations=chance.choice((0, 2)),
        deadly=chance.choice((0.0, 0.0, 0.1)),
        tools=chance.choice((0.0, 0.0, 0.3)),
        timers=0.6,
        timers_s=chance.choice(((0.3, 1.0, 4.0), (0.5, 5.0, 20.0, 70.0), (3.0, 30.0, 400.0))),
    )
    return _beset(seed, load, faults, conditions, chance)


def busy_storm(seed: int, faults: tuple[Fault, ...] = MORE_FAULTS) -> Simulation:
    """A storm among requests of which half do something to earlier ones of their conversation. Some answers would speak
    for ever: only a later request ends them, so one that does nothing is seen by what is lost. Some call tools, some
    sleep, and many are parked, because partitions hold few in memory.
    """
    return _busy(seed, faults, random.Random(f"busy {seed}"))


def rejecting_storm(seed: int, faults: tuple[Fault, ...] = MORE_FAULTS) -> Simulation:
    """The same, with no other word than `reject`, and without parked requests: one that is read while an earlier one is
    parked is not rejected.
    """
    return _busy(seed, faults, random.Random(f"rejecting {seed}"), rejects=True)


def _busy(seed: int, faults: tuple[Fault, ...], chance: random.Random, *, rejects: bool = False) -> Simulation:
    sleeps = chance.random() < 0.5
    conditions = Conditions(
        ttl_s=30 * _DAY_S,
        skew=chance.random() < 0.5,
        sweep_s=chance.choice((0.3, 3.0)),
        sleeps_after_s=chance.choice((0.05, 0.4, 1.5)) if sleeps else None,
        rounds=32 if rejects else chance.choice((1, 2, 32)),
    )
    load = Load(
        requests=6 + seed % 8,
        users=chance.choice((1, 2, 3)),
        tokens=chance.choice((2, 8)),
        over_s=chance.choice((1.0, 6.0)),
        cancels=0.05,
        repeats=0.2,
        deadlines=chance.choice((0.0, 0.2)),
        erases=chance.choice((0.0, 0.0, 0.2)),
        deletes=chance.choice((0.0, 0.0, 0.2)),
        conversations=chance.choice((0, 2)),
        deadly=chance.choice((0.0, 0.0, 0.1)),
        tools=chance.choice((0.0, 0.5)) if not sleeps else 0.6,
        tool_times_ms=(2000, 6000, 90_000) if sleeps else (2000,),
        tools_late_s=chance.choice(((0.0, 0.5), (0.0, 3.0), (1.0, 20.0, 70.0))) if sleeps else (0.0,),
        timers=chance.choice((0.0, 0.2)) if sleeps else 0.0,
        timers_s=(0.3, 1.0, 4.0),
        busy=0.5,
    )
    if rejects:
        load = replace(load, busy_words=("reject",), busy_lasts=True)
    return _beset(seed, load, faults, conditions, chance)


def steering_storm(seed: int, faults: tuple[Fault, ...] = MORE_FAULTS) -> Simulation:
    """A storm among answers with tools and messages that go into them, with all other words between."""
    chance = random.Random(f"steering {seed}")
    sleeps = chance.random() < 0.3
    conditions = Conditions(
        ttl_s=30 * _DAY_S,
        sweep_s=chance.choice((0.3, 3.0)),
        sleeps_after_s=chance.choice((0.4, 1.5)) if sleeps else None,
        rounds=chance.choice((1, 32)),
    )
    load = Load(
        requests=6 + seed % 8,
        users=chance.choice((1, 2)),
        tokens=8,
        over_s=chance.choice((1.0, 4.0)),
        cancels=0.05,
        repeats=0.2,
        deadlines=chance.choice((0.0, 0.1)),
        erases=chance.choice((0.0, 0.0, 0.2)),
        deletes=chance.choice((0.0, 0.0, 0.2)),
        deadly=chance.choice((0.0, 0.0, 0.1)),
        tools=0.7,
        tools_late_s=(0.0, 0.5, 1.5),
        busy=0.6,
        busy_words=chance.choice((("steer",), ("steer", "steer", "steer", "interrupt", "rollback", "reject"))),
    )
    return _beset(seed, load, faults, conditions, chance)


def fork_storm(seed: int, faults: tuple[Fault, ...] = MORE_FAULTS) -> Simulation:
    """A storm among conversations that begin as copies of others, at requests that run, sleep, or are over, and within
    their answers; erasures of sources and copies come meanwhile.
    """
    return _forks(seed, faults, random.Random(f"forks {seed}"), replaces=0.0)


def version_storm(seed: int, faults: tuple[Fault, ...] = MORE_FAULTS) -> Simulation:
    """The same, with copies that replace what they were made of, and a Milvus of which many calls land late."""
    return _forks(seed, faults, random.Random(f"versions {seed}"), replaces=0.7)


def _forks(seed: int, faults: tuple[Fault, ...], chance: random.Random, *, replaces: float) -> Simulation:
    sleeps = chance.random() < 0.3
    conditions = Conditions(
        ttl_s=30 * _DAY_S,
        skew=chance.random() < 0.5,
        sweep_s=chance.choice((0.3, 3.0)),
        sleeps_after_s=chance.choice((0.05, 0.4, 1.5)) if sleeps else None,
        rounds=chance.choice((1, 32)),
        milvus=replaces > 0,
    )
    load = Load(
        requests=5 + seed % 6,
        users=chance.choice((1, 2)),
        tokens=chance.choice((2, 8)),
        over_s=chance.choice((1.0, 6.0)),
        cancels=0.05,
        repeats=0.2,
        erases=chance.choice((0.0, 0.0, 0.2)),
        deletes=chance.choice((0.0, 0.0, 0.3)),
        conversations=chance.choice((0, 2)),
        deadly=chance.choice((0.0, 0.0, 0.1)),
        tools=chance.choice((0.0, 0.4)) if not sleeps else 0.6,
        tool_times_ms=(2000, 6000, 90_000) if sleeps else (2000,),
        tools_late_s=chance.choice(((0.0, 0.5), (0.0, 3.0), (1.0, 20.0))) if sleeps else (0.0,),
        forks=0.6,
        replaces=replaces,
    )
    return _beset(seed, load, faults, conditions, chance)


def agent_storm(seed: int, faults: tuple[Fault, ...] = (*FAULTS, suspend, expire_log)) -> Simulation:
    """A storm among answers that ask an agent, which may ask itself, three deep. The tail of `tokens` stays: with the
    text of an agent the verdict would lose what its asker has read.
    """
    chance = random.Random(f"agents {seed}")
    rules = AgentRules(system=chance.choice(("", "Help.")), tools=chance.choice(((), ("look_up",))))
    conditions = Conditions(
        ttl_s=30 * _DAY_S,
        skew=chance.random() < 0.5,
        sweep_s=chance.choice((0.3, 3.0)),
        sleeps_after_s=chance.choice((0.05, 1.5)),
        agents=rules,
        within_s=chance.choice((3.0, 20.0, 90.0)),
        most_asleep=chance.choice((64, 64, 1)),
    )
    load = Load(
        requests=4 + seed % 5,
        users=chance.choice((1, 2, 3)),
        tokens=chance.choice((1, 3)) if rules.tools else chance.choice((2, 8, 30)),
        cancels=0.1,
        stops=chance.choice((0.0, 0.3)),
        repeats=0.2,
        deadlines=chance.choice((0.0, 0.2)),
        erases=chance.choice((0.0, 0.0, 0.1)),
        deletes=chance.choice((0.0, 0.0, 0.1)),
        conversations=chance.choice((0, 2)),
        deadly=chance.choice((0.0, 0.0, 0.1)),
        tools=0.8,
        agents=0.2,
        tenant=chance.choice((None, "acme")),
    )
    return _beset(seed, load, faults, conditions, chance)
