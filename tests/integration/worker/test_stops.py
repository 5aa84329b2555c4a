"""A worker ends quietly at SIGTERM and Ctrl-C, whatever it is doing: exit code 0, and no line that alarms."""

from __future__ import annotations

import asyncio
import re
import signal
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from app.local.kafka import KafkaCluster
from app.local.ports import free_port
from tests.faults.worker_process import WorkerProcess
from tests.integration.worker.client import Client
from tests.integration.worker.conftest import module_settings
from tests.warm_start import warm_starts

SIGNALS = [signal.SIGTERM, signal.SIGINT]
ALARMS = re.compile(
    r"ERROR|CRITICAL|Traceback|Warning\b|Exception|-INT-|never awaited|never retrieved|GOAWAY"
    r"|could not close everything|(Attribute|Type|Name|Key|Index|Value|Assertion|Runtime)Error"
)
NewWorker = Callable[..., WorkerProcess]


@pytest.fixture
def cold() -> Iterator[None]:
    """A start as people have it."""
    with warm_starts(on=False):
        yield


@pytest.fixture
def new_worker(kafka: KafkaCluster, tmp_path: Path) -> Iterator[NewWorker]:
    workers: list[WorkerProcess] = []

    def new(**values: object) -> WorkerProcess:
        slow = {"paced_tokens_per_s": 20.0, "drain_s": 2.0, **values}
        settings = module_settings(kafka, tmp_path / f"{len(workers)}", **slow)
        log = tmp_path / f"worker-{len(workers)}.log"
        workers.append(WorkerProcess(settings, log, level="debug"))  # Faust's lines tell how far a start is
        return workers[-1]

    yield new
    for worker in workers:
        worker.kill()


def until_logged(worker: WorkerProcess, text: str) -> None:
    deadline = time.monotonic() + 120
    while text not in worker.log.read_text():
        assert worker.exit_code is None, worker.tail()
        assert time.monotonic() < deadline, worker.tail()
        time.sleep(0.01)


def until_handled(worker: WorkerProcess) -> None:
    """Until the program, and no longer the system, decides what SIGTERM does: while it imports its modules."""
    caught = 0
    while not caught >> (signal.SIGTERM - 1) & 1:
        assert worker.exit_code is None, worker.tail()
        status = Path(f"/proc/{worker.pid}/status").read_text()
        caught = int(re.findall(r"SigCgt:\s*([0-9a-f]+)", status)[0], 16)
        time.sleep(0.01)
    time.sleep(0.2)


def assert_quiet(worker: WorkerProcess, timeout_s: float = 120.0) -> None:
    assert worker.wait(timeout_s) == 0, worker.tail()
    alarms = [line for line in worker.log.read_text().splitlines() if ALARMS.search(line)]
    assert not alarms, alarms


@pytest.fixture(params=[2.0])
async def busy(new_worker: NewWorker, request: pytest.FixtureRequest) -> AsyncIterator[WorkerProcess]:
    """With answers that take longer than the grace period."""
    rate = 2.0 if request.param > 10 else 20.0
    worker = await asyncio.to_thread(new_worker, drain_s=request.param, paced_tokens_per_s=rate)
    worker.start()
    worker.wait_owning(worker.settings.partitions)
    async with Client(worker.settings) as client:
        asked = [(user, await client.ask(user, max_tokens=1000)) for user in (client.user() for _ in range(8))]
        for user, request_id in asked:
            await client.begun(user, request_id)
        yield worker


@pytest.mark.usefixtures("cold")
@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize("line", ["", "[INFO]", "oined group", "_on_partitions_assigned"])
def test_a_start_is_interrupted(new_worker: NewWorker, line: str, number: signal.Signals) -> None:
    worker = new_worker().start()
    until_handled(worker)
    until_logged(worker, line)
    worker.signal(number)
    assert_quiet(worker)


@pytest.mark.usefixtures("cold")
@pytest.mark.parametrize("number", SIGNALS)
def test_an_idle_worker_stops(new_worker: NewWorker, number: signal.Signals) -> None:
    worker = new_worker().start()
    worker.wait_owning(worker.settings.partitions)
    worker.signal(number)
    assert_quiet(worker)


@pytest.mark.parametrize("number", SIGNALS)
async def test_a_busy_worker_tells_what_it_waits_for(busy: WorkerProcess, number: signal.Signals) -> None:
    busy.signal(number)
    await asyncio.to_thread(assert_quiet, busy)
    assert "waiting up to 2 s for the 8 answers" in busy.log.read_text()


@pytest.mark.parametrize("busy", [600.0], indirect=True)
@pytest.mark.parametrize("number", SIGNALS)
async def test_a_second_signal_ends_the_grace_period(busy: WorkerProcess, number: signal.Signals) -> None:
    busy.signal(number)
    await asyncio.to_thread(until_logged, busy, "waiting up to")
    busy.signal(number)
    await asyncio.to_thread(assert_quiet, busy)


@pytest.mark.parametrize("number", SIGNALS)
def test_a_worker_that_waits_for_its_broker_stops(new_worker: NewWorker, number: signal.Signals) -> None:
    worker = new_worker()
    worker.settings = worker.settings.model_copy(update={"broker": f"kafka://127.0.0.1:{free_port()}"})
    worker.start()
    until_logged(worker, "waiting for it")
    worker.signal(number)
    assert_quiet(worker)


def test_a_worker_whose_broker_has_gone_stops(start_kafka: Callable[..., KafkaCluster], tmp_path: Path) -> None:
    kafka = start_kafka()
    worker = WorkerProcess(module_settings(kafka, tmp_path), tmp_path / "worker.log").start()
    try:
        worker.wait_owning(worker.settings.partitions)
        kafka.kill()
        time.sleep(3)
        worker.signal(signal.SIGTERM)
        assert_quiet(worker)
    finally:
        worker.kill()


def test_a_worker_stops_in_the_middle_of_a_rebalance(new_worker: NewWorker, tmp_path: Path) -> None:
    first = new_worker().start()
    first.wait_owning(first.settings.partitions)
    data = first.settings.model_copy(update={"data_dir": tmp_path / "second"})
    second = WorkerProcess(data, tmp_path / "second.log", level="debug").start()
    try:
        until_logged(second, "joining group")
        first.signal(signal.SIGTERM)
        until_logged(second, "_on_partitions_assigned")
        second.signal(signal.SIGINT)
        assert_quiet(first)
        assert_quiet(second)
    finally:
        second.kill()
