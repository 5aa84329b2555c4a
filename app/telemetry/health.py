"""Whether the worker works, for people and for orchestrators.

`/healthz` fails only where a restart would help. A broker that is away is none of that: the worker waits and goes on by
itself, so `/healthz` only tells of it, and `/readyz` fails.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from app.delivery.partition import State
from app.delivery.record import REQUESTS
from app.telemetry.collector import commit_age
from app.worker import Worker

# A commit takes milliseconds; one that has waited for so long waits for the broker.
LATE_S = 5.0


@dataclass(frozen=True, slots=True)
class Health:
    """`alive`: no restart would help. `ready`: every partition that is assigned is answered."""

    alive: bool
    ready: bool
    details: dict[str, Any]


def health_of(worker: Worker | None) -> Health:
    if worker is None:
        return Health(alive=True, ready=False, details={"status": "starting"})
    found = sorted(worker.owner.partitions.items())
    ages = {number: commit_age(one) if one.state is State.OWNED else None for number, one in found}
    partitions = {
        str(number): {"state": one.state.value, "open": one.open_of(REQUESTS), "commit_age_s": ages[number]}
        for number, one in found
    }
    waiting = [str(number) for number, age in ages.items() if age is None or age > LATE_S]
    status = f"waiting for the broker on partitions {', '.join(waiting)}" if waiting else "ok"
    details = {
        "status": status,
        "partitions": partitions,
        "history_backlog": worker.history_backlog,
        "model": worker.model_version,
    }
    return Health(alive=True, ready=not waiting, details=details)
