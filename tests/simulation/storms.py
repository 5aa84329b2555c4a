"""Random storms: a load, the conditions of a world, and faults that are drawn for it."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Literal

from aiokafka import TopicPartition

from app.delivery.commits.commit import Waiting
from app.delivery.partition import State
from app.wire.codec import decode
from app.wire.event import PLAN, TokenEvent
from tables.records import Table
from tests.simulation.faults import (
    FAULTS,
    MORE_FAULTS,
    Fault,
    broker_away,
    corrupt,
    cut_off,
    expire_log,
    inflict_some,
    join,
    kill,
    rebalance,
    suspend,
)
from tests.simulation.scenario import PLAIN, SESSION_S, Conditions, Load, Simulation

MILVUS_TROUBLE_S = 60.0
_SUSPENDED = 0.02
"""How likely a worker is suspended in each 2 ms of a take-over."""
_REPLAY_S = 120.0


def storm(seed: int, erases: float = 0.0, faults: tuple[Fault, ...] = FAULTS, reasoning: float = 0.0) -> Simulation:
    """A random load on random workers, and up to eight random faults: some at a time, some at a step."""
    load = replace(_random_load(seed), erases=erases, reasoning=reasoning)
    return _beset(seed, load, faults)


def _beset(seed: int, load: Load, faults: tuple[Fault, ...], conditions: Conditions = PLAIN) -> Simulation:
    """One to three workers with one or two partitions, and some of the faults."""
    simulation = Simulation(seed, workers=1 + seed % 3, partitions=1 + seed // 3 % 2, load=load, conditions=conditions)
    inflict_some(simulation, faults)
    return simulation


def talking_storm(seed: int) -> Simulation:
    """A storm among requests that continue their conversations by a prompt or by messages."""
    chance = random.Random(f"talking {seed}")
    ttl_s = chance.choice((2.0, 1800.0))
    load = Load(
        requests=6 + seed % 6,
        users=1 + seed % 2,
        repeats=0.1,
        cancels=0.1,
        talks=0.6,
        pauses=0.1 if ttl_s < 10 else 0.0,
        erases=chance.choice((0.0, 0.1)),
    )
    simulation = Simulation(seed, workers=1 + seed % 3, load=load, conditions=Conditions(ttl_s=ttl_s))
    inflict_some(simulation, FAULTS)
    return simulation


def wide_storm(seed: int, faults: tuple[Fault, ...] = MORE_FAULTS) -> Simulation:
    """A storm with all there is: clocks, expiry, erasures, Milvus, bad records, retention, lost tails."""
    chance = random.Random(f"wide {seed}")
    conditions = Conditions(
        ttl_s=chance.choice((1.0, 2.0, 1800.0)),
        sweep_s=chance.choice((0.3, 3.0)),
        skew=chance.random() < 0.5,
        milvus=chance.random() < 0.3,
    )
    load = Load(
        requests=5 + seed % 8,
        cancels=0.1,
        repeats=0.1,
        garbage=0.1,
        deadlines=0.1,
        erases=chance.choice((0.0, 0.2)),
        pauses=chance.choice((0.0, 0.2)) if conditions.ttl_s < 10 else 0.0,
        skewed=chance.choice((0.0, 0.3)),
        misplaced=chance.choice((0.0, 0.1)),
        huge=chance.choice((0.0, 0.1)),
        deadly=chance.choice((0.0, 0.0, 0.1)),
    )
    return _beset(seed, load, faults, conditions)


def corrupt_storm(seed: int) -> Simulation:
    """A storm on stores whose disks lose blocks, with erasures and sweeps, which read all that there is."""
    return wide_storm(seed, faults=(corrupt, corrupt, *FAULTS))


def tool_storm(seed: int, faults: tuple[Fault, ...] = MORE_FAULTS, reasoning: float = 0.0) -> Simulation:
    """A storm among answers that call tools over Kafka."""
    chance = random.Random(f"tools {seed}")
    conditions = Conditions(skew=chance.random() < 0.5, sweep_s=chance.choice((0.3, 3.0)))
    load = Load(
        requests=5 + seed % 8,
        tokens=chance.choice((2, 8)),
        cancels=0.1,
        repeats=0.1,
        deadlines=chance.choice((0.0, 0.2)),
        erases=chance.choice((0.0, 0.2)),
        skewed=chance.choice((0.0, 0.3)),
        deadly=chance.choice((0.0, 0.0, 0.1)),
        tools=0.7,
        reasoning=reasoning,
    )
    return _beset(seed, load, faults, conditions)


def foreign_storm(seed: int, faults: tuple[Fault, ...] = MORE_FAULTS) -> Simulation:
    """A storm among requests of which most come by topics of others, and whose answers are told there."""
    chance = random.Random(f"foreign {seed}")
    conditions = Conditions(skew=chance.random() < 0.5, foreign=True, routed=chance.random() < 0.3)
    load = Load(
        requests=6 + seed % 10,
        tokens=chance.choice((2, 8)),
        cancels=0.1,
        repeats=0.1,
        garbage=0.2,
        erases=chance.choice((0.0, 0.2)),
        deadly=chance.choice((0.0, 0.0, 0.1)),
        foreign=0.7,
    )
    return _beset(seed, load, faults, conditions)


def routed_storm(seed: int, faults: tuple[Fault, ...] = MORE_FAULTS, reasoning: float = 0.0) -> Simulation:
    """A storm in which every worker would decide otherwise about an answer."""
    chance = random.Random(f"routes {seed}")
    conditions = Conditions(skew=chance.random() < 0.5, routed=True, crowded=chance.random() < 0.3)
    load = Load(
        requests=5 + seed % 8,
        tokens=chance.choice((2, 8)),
        cancels=0.1,
        repeats=0.1,
        deadlines=chance.choice((0.0, 0.2)),
        erases=chance.choice((0.0, 0.0, 0.2)),
        skewed=chance.choice((0.0, 0.3)),
        deadly=chance.choice((0.0, 0.0, 0.1)),
        tools=chance.choice((0.0, 0.3)),
        failing=chance.choice((0.0, 0.4, 0.8)),
        same=chance.choice((0.0, 0.6)),
        reasoning=reasoning,
    )
    return _beset(seed, load, faults, conditions)


def recalling_storm(seed: int, faults: tuple[Fault, ...] = MORE_FAULTS) -> Simulation:
    """A storm among prompts with older turns from a Milvus that is slow at times, and erasures of what was recalled."""
    chance = random.Random(f"recall {seed}")
    conditions = Conditions(milvus=True, routed=chance.random() < 0.5, ttl_s=chance.choice((1.0, 1800.0)))
    load = Load(
        requests=6 + seed % 8,
        users=2,
        tokens=chance.choice((2, 8)),
        over_s=8.0,
        cancels=0.1,
        erases=chance.choice((0.0, 0.2)),
        deadly=chance.choice((0.0, 0.0, 0.1)),
        failing=0.4 if conditions.routed else 0.0,
        recall=0.8,
    )
    return _beset(seed, load, faults, conditions)


def guarded_storm(
    seed: int, faults: tuple[Fault, ...] = (*FAULTS, suspend, expire_log), reasoning: float = 0.0
) -> Simulation:
    """A storm among answers of which judges hold back a part and block some, and prompts of which a third have their
    private values hidden. Neither judges nor the analyzer find the same twice. The tail of `tokens` stays: a plan that
    Kafka loses is decided anew, and the answer is another one.
    """
    chance = random.Random(f"moderate {seed}")
    pii: Literal["off", "mask"] = chance.choice(("off", "off", "mask"))
    ttl_s = random.Random(f"mask {seed}").choice((1.0, 1800.0)) if pii == "mask" else 1800.0
    conditions = Conditions(moderated=True, pii=pii, ttl_s=ttl_s, routed=chance.random() < 0.3)
    load = Load(
        requests=6 + seed % 8,
        users=2,
        tokens=chance.choice((4, 150)),
        over_s=6.0,
        cancels=0.1,
        repeats=0.1,
        erases=chance.choice((0.0, 0.2)),
        deadly=chance.choice((0.0, 0.0, 0.1)),
        tools=chance.choice((0.0, 0.3)),
        failing=0.4 if conditions.routed else 0.0,
        reasoning=reasoning,
    )
    return _beset(seed, load, faults, conditions)


def reasoning_storm(seed: int) -> Simulation:
    """One of the other storms, in which models reason before most answers."""
    return (storm, tool_storm, routed_storm, guarded_storm)[seed % 4](seed, reasoning=0.7)


def expiring_storm(seed: int) -> Simulation:
    """Conversations of a second, swept three times a second, under everything that keeps requests waiting."""
    load = Load(requests=24, users=2, tokens=2, over_s=12.0)
    conditions = Conditions(ttl_s=1.0, sweep_s=0.3)
    simulation = Simulation(seed, workers=1 + seed % 3, partitions=1, load=load, conditions=conditions)
    inflict_some(simulation, (suspend, cut_off, broker_away, rebalance, kill))
    return simulation


def suspended_sweep(seed: int) -> Simulation:
    """A worker is suspended for longer than its session while it commits what a sweep deletes; then it goes on."""
    load = Load(requests=30, users=2, tokens=2, over_s=8.0, pauses=0.25)
    simulation = Simulation(seed, workers=2, load=load, conditions=Conditions(ttl_s=1.0, sweep_s=0.3))

    def watch() -> None:
        for process in simulation.alive:
            for partition in process.worker.partitions.all.values():
                queue = partition.context.queue
                if any(_is_sweep(entry) for entry in (*queue.waiting, *queue.in_hand)):
                    process.suspend()
                    simulation.world.after(5.5, process.resume)
                    return
        simulation.world.after(0.0005, watch)

    simulation.world.after(1.5, watch)
    return simulation


def suspended_fence(seed: int) -> Simulation:
    """Workers are suspended while they take over, for less than their session, so that the acknowledgement of the fence
    comes late and their clocks lag. Most requests come with an erasure.
    """
    load = Load(requests=16, erases=0.5, over_s=8.0)
    simulation = Simulation(seed, workers=2, load=load, conditions=Conditions(skew=seed % 2 == 0))
    chance = random.Random(f"suspended fence {seed}")

    def watch() -> None:
        for process in simulation.alive:
            partitions = process.worker.partitions.all.values()
            if any(one.state is State.TAKING_OVER for one in partitions) and chance.random() < _SUSPENDED:
                process.suspend()
                simulation.world.after(chance.uniform(1.5, 3.5), process.resume)
        simulation.world.after(0.002, watch)

    simulation.world.after(0.001, watch)
    inflict_some(simulation, (kill, rebalance, join))
    return simulation


def rebalance_while_away(seed: int) -> Simulation:
    """A rebalance while the broker is away and answers that are tried again come to their end: the release gives up
    waiting for what they are writing, and that must not end their deliveries.
    """
    simulation = Simulation(seed, workers=1, load=Load(requests=12, tokens=12, over_s=2.0))
    chance = random.Random(f"rebalance while away {seed}")

    def kill_all() -> None:
        for process in simulation.alive:
            process.kill()
            simulation.world.after(0.01, partial(simulation.start_again, f"{process.name}'"))

    killed_at = chance.uniform(0.5, 2.0)
    away_at = killed_at + SESSION_S + chance.uniform(0.3, 2.0)
    simulation.world.after(killed_at, kill_all)
    simulation.world.after(away_at, partial(setattr, simulation.broker, "up", False))
    simulation.world.after(away_at - chance.uniform(0.0, 0.02), simulation.group.rebalance)
    simulation.world.after(away_at + chance.uniform(2.6, 3.5), partial(setattr, simulation.broker, "up", True))
    return simulation


def repeated_erasures(seed: int) -> Simulation:
    """Erasures of one user that come faster than they are carried out."""
    load = Load(requests=16, users=1, erases=0.9, over_s=2.0)
    simulation = Simulation(seed, workers=2, load=load, conditions=Conditions(milvus=True))
    inflict_some(simulation, (suspend, rebalance, kill))
    return simulation


def erasing_storm(seed: int) -> Simulation:
    """Erasures beside most requests, a Milvus half of whose calls land late, and owners that come and go."""
    load = Load(requests=10, erases=0.5, over_s=8.0)
    simulation = Simulation(seed, workers=2, partitions=1 + seed % 2, load=load, conditions=Conditions(milvus=True))
    assert simulation.milvus is not None
    simulation.milvus.late = 0.5
    # Opening a collection takes four calls in a row: half of them late for good might never let a writer through.
    simulation.world.after(MILVUS_TROUBLE_S, partial(setattr, simulation.milvus, "late", 0.0))
    inflict_some(simulation, (kill, suspend, suspend, rebalance))
    return simulation


def masked_erasing_storm(seed: int) -> Simulation:
    """Erasures beside most requests, while an analyzer that fails at times reads what is to be indexed."""
    load = Load(requests=10, erases=0.5, over_s=8.0)
    conditions = Conditions(milvus=True, pii="mask")
    simulation = Simulation(seed, workers=2, partitions=1 + seed % 2, load=load, conditions=conditions)
    inflict_some(simulation, (kill, suspend, rebalance))
    return simulation


def replayed_turns(seed: int, load: Load | None = None) -> Simulation:
    """An operator stops all workers long after the erasures, resets the group's offsets of `turns`, and starts again.

    By then each erasure has been repeated once, and the next repetition is minutes away.
    """
    load = load or Load(requests=10, erases=0.5, over_s=8.0)
    simulation = Simulation(seed, workers=2, partitions=1 + seed % 2, load=load, conditions=Conditions(milvus=True))
    simulation.keep_running(_REPLAY_S + 10.0)

    def replay() -> None:
        for process in simulation.alive:
            process.kill()
        for at in [at for at in simulation.broker.committed if at.topic == "turns"]:
            del simulation.broker.committed[at]
        for number in range(2):
            simulation.start(f"replays{number}")

    simulation.world.after(_REPLAY_S, replay)
    return simulation


def crowded_storm(seed: int) -> Simulation:
    """Long answers on workers that are busy all the time, and requests that wait for the commit before them."""
    load = Load(requests=20, users=3, tokens=40, over_s=3.0, cancels=0.1, repeats=0.1)
    conditions = Conditions(crowded=True)
    simulation = Simulation(seed, workers=1 + seed % 2, partitions=1 + seed % 3, load=load, conditions=conditions)
    inflict_some(simulation, FAULTS)
    return simulation


def flooded_storm(seed: int, faults: tuple[Fault, ...] = (*FAULTS, expire_log)) -> Simulation:
    """Two users send many times their share at once, in one conversation and in many."""
    chance = random.Random(f"flood {seed}")
    load = Load(
        requests=40,
        users=2,
        tokens=3,
        over_s=chance.choice((0.5, 4.0)),
        cancels=chance.choice((0.0, 0.1)),
        repeats=0.1,
        garbage=chance.choice((0.0, 0.1)),
        erases=chance.choice((0.0, 0.05)),
        tools=chance.choice((0.0, 0.3)),
        same=chance.choice((0.0, 0.5)),
    )
    return _beset(seed, load, faults, Conditions(rounds=3))


def crammed_storm(seed: int, faults: tuple[Fault, ...] = (*FAULTS, suspend, expire_log)) -> Simulation:
    """Many users of a tenant, and some of none, send more than a partition holds."""
    chance = random.Random(f"crammed {seed}")
    load = Load(
        requests=30,
        users=chance.choice((3, 10, 30)),
        tokens=3,
        over_s=chance.choice((0.3, 3.0)),
        cancels=chance.choice((0.0, 0.1)),
        repeats=0.1,
        deadlines=chance.choice((0.0, 0.2)),
        tools=chance.choice((0.0, 0.2)),
        conversations=chance.choice((0, 3)),
        tenant=chance.choice((None, "acme")),
    )
    return _beset(seed, load, faults, Conditions(rounds=2))


def mixed_storm(seed: int, faults: tuple[Fault, ...] = (*FAULTS, suspend, expire_log)) -> Simulation:
    """A storm among workers that do not serve the same models, with a guard that never finds the same twice. The tail
    of `tokens` stays, as in `guarded_storm`.
    """
    chance = random.Random(f"mixed {seed}")
    pii: Literal["off", "mask"] = chance.choice(("off", "mask"))
    conditions = Conditions(routed=True, mixed=True, pii=pii, moderated=chance.random() < 0.5)
    load = Load(
        requests=6 + seed % 8,
        users=2,
        tokens=chance.choice((2, 8)),
        over_s=6.0,
        cancels=0.1,
        repeats=0.1,
        deadly=chance.choice((0.0, 0.1)),
        tools=chance.choice((0.0, 0.4)),
    )
    simulation = Simulation(seed, workers=2 + seed % 2, partitions=1 + seed // 3 % 2, load=load, conditions=conditions)
    inflict_some(simulation, faults)
    return simulation


def killed_as_it_decides(make: Callable[[int], Simulation], field: str) -> Callable[[int], Simulation]:
    """The same storms; and as soon as an answer's plan has the field, its owner dies."""

    def with_kills(seed: int) -> Simulation:
        simulation = make(seed)
        read = Counter[int]()

        def look(number: int) -> None:
            log = simulation.broker.log(TopicPartition("tokens", number))
            begin, read[number] = read[number], log.end
            new = [entry for entry in log.entries if entry.offset >= begin and entry.value]
            notices = [decode(TokenEvent, entry.value or b"", entry.headers).notice for entry in new]
            if any(one is not None and one.code == PLAN and (one.details or {}).get(field) for one in notices):
                for process in simulation.alive:
                    if any(one.number == number for one in process.partitions):
                        process.kill()
                        simulation.world.after(0.5, partial(simulation.start_again, process.name))

        for number in range(simulation.partitions):
            look_soon = partial(simulation.world.after, 0.0, partial(look, number))
            simulation.broker.log(TopicPartition("tokens", number)).readers.append(look_soon)
        return simulation

    return with_kills


def _is_sweep(entry: Waiting) -> bool:
    changes = entry.commit.changes
    return entry.commit.record is None and any(
        change.table is Table.CONVERSATIONS and change.value is None for change in changes
    )


def _random_load(seed: int) -> Load:
    if seed % 2:
        return Load(requests=4 + seed % 9)
    return Load(requests=4 + seed % 9, cancels=0.2, repeats=0.2, garbage=0.1, deadlines=0.2)
