from __future__ import annotations

import time
from pathlib import Path

import pytest

from app.delivery.clients import Clients
from app.settings import Settings
from app.telemetry.broker_watch import BrokerWatch
from app.telemetry.health import Health, health_of
from app.worker import Loaded, Worker
from models.interface.generation import EngineStats
from models.served.paced import PacedEngine, paced
from models.served.registry import ModelRegistry, ServedModel


class Stepping(PacedEngine):
    """An engine whose step in hand has been running for so long."""

    step_s = 0.0

    @property
    def stats(self) -> EngineStats:
        return EngineStats(running=1, step_s=self.step_s)


class NoFlow:
    def pause(self, topic: str, partition: int) -> None: ...

    def resume(self, topic: str, partition: int) -> None: ...

    async def caught_up(self, topic: str, partition: int) -> bool:
        return True


def health(tmp_path: Path, *, step_s: float = 0.0, silent_s: float = 0.0) -> Health:
    settings = Settings(_env_file=None, data_dir=tmp_path, embedder="none")
    engine = Stepping(10.0)
    engine.step_s = step_s
    base = paced(10.0)
    model = ServedModel(engine, base.prompts, base.defaults, base.names, base.text_of)
    worker = Worker(settings, Loaded(ModelRegistry(model), None), NoFlow(), lambda _error: None)
    watch = BrokerWatch(Clients(settings), list)
    watch._heard_at = time.monotonic() - silent_s
    return health_of(worker, watch)


async def test_a_worker_that_stands_by_is_alive_and_ready(tmp_path: Path) -> None:
    reported = health(tmp_path)
    assert (reported.alive, reported.ready, reported.details["status"]) == (True, True, "ok")


@pytest.mark.parametrize(
    ("step_s", "alive", "word"), [(20.0, True, "the engine is slow"), (70.0, False, "the engine hangs")]
)
async def test_a_step_that_does_not_end_is_not_ready_and_then_not_alive(
    tmp_path: Path, step_s: float, alive: bool, word: str
) -> None:
    reported = health(tmp_path, step_s=step_s)
    assert (reported.alive, reported.ready) == (alive, False)
    assert reported.details["status"].startswith(word)


async def test_a_broker_that_is_silent_is_told_and_no_reason_to_restart(tmp_path: Path) -> None:
    reported = health(tmp_path, silent_s=12)
    assert (reported.alive, reported.ready) == (True, False)
    assert reported.details["status"] == "the broker has not answered for 12 s"


def test_a_worker_that_starts_is_alive_and_not_ready() -> None:
    reported = health_of(None, BrokerWatch(Clients(Settings(_env_file=None)), list))
    assert (reported.alive, reported.ready, reported.details["status"]) == (True, False, "starting")
