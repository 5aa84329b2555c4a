"""What is done to the processes of a simulation."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from app.delivery.record import CONTROLS, REQUESTS
from tests.simulation.process import Process
from tests.simulation.scenario import Simulation

Fault = Callable[[Simulation, Process], None]


def kill(simulation: Simulation, process: Process) -> None:
    """Kill -9; it comes back with its data, without it, or under another name."""
    process.kill()
    back = simulation.random.choice((process.name, process.name, f"{process.name}'"))
    if simulation.random.random() < 0.2:
        simulation.disk.images.clear()
    simulation.world.after(simulation.random.choice((0.01, 0.5, 6.0)), partial(simulation.start_again, back))


def suspend(simulation: Simulation, process: Process) -> None:
    """SIGSTOP, for less or more than the session."""
    process.suspend()
    simulation.world.after(simulation.random.choice((0.5, 3.0, 6.0, 9.0)), process.resume)


def cut_off(simulation: Simulation, process: Process) -> None:
    process.link_up = False
    simulation.world.after(simulation.random.choice((0.3, 3.0, 7.0)), partial(setattr, process, "link_up", True))


def stop(simulation: Simulation, process: Process) -> None:
    process.stop()
    simulation.world.after(simulation.random.choice((0.01, 3.0)), partial(simulation.start_again, f"{process.name}+"))


def join(simulation: Simulation, _process: Process) -> None:
    if len(simulation.alive) < 4:
        simulation.start_again(f"j{len(simulation.processes)}")


def rebalance(simulation: Simulation, _process: Process) -> None:
    simulation.group.rebalance()


def broker_away(simulation: Simulation, _process: Process) -> None:
    simulation.broker.up = False
    away = simulation.random.choice((0.2, 2.0, 8.0))
    simulation.world.after(away, partial(setattr, simulation.broker, "up", True))


def trouble(simulation: Simulation, _process: Process) -> None:
    simulation.broker.trouble = simulation.random.choice((0.02, 0.1, 0.4))
    simulation.world.after(simulation.random.choice((0.3, 2.0)), partial(setattr, simulation.broker, "trouble", 0.0))


def compact(simulation: Simulation, _process: Process) -> None:
    logs = simulation.broker.logs
    simulation.broker.compact({at: log for at, log in logs.items() if at.topic.endswith("-changelog")})


def expire_log(simulation: Simulation, _process: Process) -> None:
    """Retention: what no worker needs any more leaves the logs."""
    broker = simulation.broker
    for at, log in broker.logs.items():
        committed = broker.committed.get(at)
        if at.topic in (REQUESTS, CONTROLS) and committed is not None:
            log.retain(committed.offset)


def corrupt(simulation: Simulation, process: Process) -> None:
    """A block of a store that is open cannot be read any more; or a store is found so when it is opened."""
    of_process = [image for image in simulation.disk.images.values() if image.owner in (process.name, None)]
    if of_process:
        simulation.random.choice(of_process).corrupt()


def lose_tail(simulation: Simulation, _process: Process) -> None:
    """An unclean election of a partition of `tokens`: its newest records are gone, and others get their offsets."""
    broker = simulation.broker
    logs = [log for at, log in broker.logs.items() if at.topic == "tokens" and log.end and not log.open]
    if logs:
        log = simulation.random.choice(logs)
        simulation.lost(log.truncate(log.end - simulation.random.randint(1, 6)))
        broker.elections += 1


_STEPS = 1000
"""Most of what a storm's processes do: an idle process takes no steps."""

FAULTS: tuple[Fault, ...] = (kill, kill, kill, suspend, cut_off, stop, join, rebalance, broker_away, trouble, compact)
MORE_FAULTS: tuple[Fault, ...] = (*FAULTS, suspend, expire_log, lose_tail)


def inflict(simulation: Simulation, fault: Fault) -> None:
    alive = [process for process in simulation.alive if not process.leaving]
    if alive:
        fault(simulation, simulation.random.choice(alive))


def inflict_some(simulation: Simulation, faults: tuple[Fault, ...]) -> None:
    for _ in range(simulation.random.randint(1, 8)):
        fault = simulation.random.choice(faults)
        if simulation.random.random() < 0.5:
            simulation.world.after(12 * simulation.random.random(), partial(inflict, simulation, fault))
        else:
            simulation.at_step(simulation.random.randint(1, _STEPS), partial(inflict, simulation, fault))
