"""Whether the worker works, for people and for orchestrators.

`/healthz` fails only if a restart would help: the engine hangs in a step. An unreachable broker is no such case,
because the worker waits and continues by itself; `/healthz` mentions it, and `/readyz` fails. A worker without
partitions is ready: it is a spare.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from app.delivery.partition import Partition, State
from app.delivery.record import REQUESTS
from app.telemetry.broker_watch import BrokerWatch
from app.telemetry.partitions import lag_seconds
from models.interface.generation import Engine

if TYPE_CHECKING:
    from app.worker import Worker

# A commit takes milliseconds; one that has waited this long waits for the broker.
LATE_S = 5.0
# The broker is asked every two seconds.
SILENT_S = 10.0
# Steps take milliseconds, long prompts on a CPU seconds. The engine itself gives up after two minutes.
SLOW_STEP_S = 15.0
HUNG_STEP_S = 60.0


@dataclass(frozen=True, slots=True)
class Health:
    """`alive`: a restart would not help. `ready`: every assigned partition is served."""

    alive: bool
    ready: bool
    details: dict[str, Any]


def health_of(worker: Worker | None, watch: BrokerWatch, *, rebalancing: bool = False) -> Health:
    if worker is None:
        return Health(alive=True, ready=False, details={"status": "starting"})
    partitions = [worker.partitions.all[number] for number in sorted(worker.partitions.all)]
    slowest = max((engine.stats.step_s for engine in worker.engines), default=0.0)
    troubles = [*_engine(slowest), *_broker(watch), *_partitions(partitions)]
    details = {
        "status": "; ".join(troubles) or "ok",
        "partitions": {str(partition.number): _partition_details(partition) for partition in partitions},
        "rebalancing": rebalancing,
        "broker_silent_s": round(watch.silent_s, 1),
        "index_backlog": worker.index_backlog,
        "model": worker.model_version,
        "engines": [_engine_details(engine) for engine in worker.engines],
    }
    return Health(alive=slowest < HUNG_STEP_S, ready=not troubles, details=details)


def _engine(slowest: float) -> Sequence[str]:
    if slowest < SLOW_STEP_S:
        return ()
    what = "the engine hangs" if slowest >= HUNG_STEP_S else "the engine is slow"
    return (f"{what}: one step has been running for {slowest:.0f} s",)


def _broker(watch: BrokerWatch) -> Sequence[str]:
    if watch.silent_s < SILENT_S:
        return ()
    return (f"the broker has not answered for {watch.silent_s:.0f} s",)


def _partitions(partitions: Sequence[Partition]) -> Sequence[str]:
    def listed(*, in_state: State) -> str:
        return ", ".join(str(partition.number) for partition in partitions if partition.state is in_state)

    troubles = []
    owned = [partition for partition in partitions if partition.state is State.OWNED]
    late = ", ".join(str(partition.number) for partition in owned if partition.context.queue.age_s > LATE_S)
    if restoring := listed(in_state=State.TAKING_OVER):
        troubles.append(f"taking over partitions {restoring}")
    if fenced := listed(in_state=State.FENCED):
        troubles.append(f"partitions {fenced} were taken over by another worker")
    if late:
        troubles.append(f"waiting for the broker to commit on partitions {late}")
    return troubles


def _partition_details(partition: Partition) -> dict[str, Any]:
    return {
        "state": partition.state.value,
        "open": partition.records.count(REQUESTS),
        "commit_age_s": round(partition.context.queue.age_s, 3),
        "lag_s": round(lag_seconds(partition), 3),
    }


def _engine_details(engine: Engine) -> dict[str, Any]:
    stats = engine.stats
    return {
        "model": engine.model_version,
        "running": stats.running,
        "waiting": stats.waiting,
        "step_s": round(stats.step_s, 3),
    }
