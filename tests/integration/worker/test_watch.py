"""A worker's process dies and its watcher leaves the group for it; and what a watcher must never do."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import UnknownMemberIdError

from app.local.kafka import KafkaCluster
from app.settings import Settings
from app.watch.brake import MOST, WITHIN_S, Brake
from app.watch.goodbye import Goodbye, LeaveOutcome
from app.watch.post import Ward
from app.watch.sidecar import Sidecar
from app.watch.watcher import Watcher
from tests.environment import environment_of
from tests.faults.worker_process import FAUST, WorkerProcess
from tests.integration.worker.client import Client
from tests.integration.worker.conftest import module_settings
from tests.integration.worker.test_health import series, total

SESSION_S = 600.0
"""Far more than `until` waits: a group that has gone on within that has done so by a leave."""
LEAVES = rb"the watcher leaves \S+ for its member (\S+): (.*) \("
Start = Callable[..., WorkerProcess]


@pytest.fixture
def settings(kafka: KafkaCluster, tmp_path: Path) -> Settings:
    return module_settings(kafka, tmp_path, session_timeout_s=SESSION_S, paced_tokens_per_s=20.0)


@pytest.fixture
def start(settings: Settings, tmp_path: Path) -> Iterator[Start]:
    """Starts workers of one group, each with a watcher that is ready."""
    workers: list[WorkerProcess] = []

    def start(name: str = "one", **values: object) -> WorkerProcess:
        own = settings.model_copy(update={"data_dir": tmp_path / name, **values})
        workers.append(WorkerProcess(own, tmp_path / f"{name}.log").start())
        workers[-1].wait_assigned()
        if own.watch == "child":
            until(lambda: is_watched(workers[-1]))
        return workers[-1]

    yield start
    for worker in workers:
        worker.kill()


def children_of(process: int) -> list[int]:
    """Living ones, and those that are not reaped."""
    return [int(one) for one in Path(f"/proc/{process}/task/{process}/children").read_text().split()]


def watchers(process: str = "") -> list[int]:
    """Processes that watch this one, or any."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            command = stat.with_name("cmdline").read_bytes().split(b"\0")
            if b"app.watch.child" in command and process.encode() in (b"", command[-2]):
                found.append(int(stat.parent.name))
    return found


def watchers_of(worker: WorkerProcess) -> list[int]:
    return watchers(str(worker.pid))


def is_watched(worker: WorkerProcess) -> bool:
    """Whether its watcher knows it and has found the coordinator."""
    with suppress(OSError):  # its web server comes later
        return total(series(worker), "parley:watch_ready") == 1
    return False


def until(holds: Callable[[], object], timeout_s: float = 120.0) -> None:
    began = time.monotonic()
    while not holds():
        assert time.monotonic() < began + timeout_s
        time.sleep(0.01)


def leaves(worker: WorkerProcess) -> list[tuple[bytes, bytes]]:
    """(member, outcome) of each."""
    return re.findall(LEAVES, worker.log.read_bytes())


def moved(worker: WorkerProcess) -> int:
    """How often it has taken partitions over."""
    return worker.log.read_bytes().count(b"taken over")


def test_the_group_goes_on_at_once_when_a_worker_is_killed(start: Start) -> None:
    one, other = start("one"), start("other")
    before = moved(other)
    one.kill()
    until(lambda: moved(other) > before)
    until(lambda: not watchers_of(one))
    assert [outcome for _, outcome in leaves(one)] == [b"the group goes on without it"]
    assert json.loads((one.settings.data_dir / "leaves").read_text())["leaves"] == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_orderly_end_leaves_no_watcher_and_no_line(start: Start, number: signal.Signals) -> None:
    one = start()
    (watcher,) = watchers_of(one)
    assert os.getsid(watcher) == watcher, "Ctrl-C at a terminal is not for it"
    rss = re.findall(r"VmRSS:\s*(\d+) kB", Path(f"/proc/{watcher}/status").read_text())
    assert int(rss[0]) < 40_000
    one.signal(number)
    assert one.wait(120.0) == 0
    until(lambda: not watchers_of(one))
    assert not leaves(one)


def test_a_worker_that_is_suspended_or_signalled_through_its_watcher_is_left_alone(start: Start) -> None:
    one = start()
    (watcher,) = watchers_of(one)
    for ignored in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        os.kill(watcher, ignored)
    before = moved(one)
    one.signal(signal.SIGSTOP)
    time.sleep(4.0)
    one.signal(signal.SIGCONT)
    time.sleep(2.0)
    assert watchers_of(one) == [watcher]
    assert not leaves(one)
    assert moved(one) == before


def test_a_watcher_that_dies_is_started_again_and_leaves_for_its_worker(start: Start) -> None:
    one, other = start("one"), start("other")
    (watcher,) = watchers_of(one)
    os.kill(watcher, signal.SIGKILL)
    until(lambda: watchers_of(one) not in ([], [watcher]))
    assert b"the watcher has ended (-9); tried again" in one.log.read_bytes()
    assert watcher not in children_of(one.pid), "it is reaped"
    until(lambda: is_watched(one))
    before = moved(other)
    one.kill()
    until(lambda: moved(other) > before)


def test_a_crash_loop_is_left_to_the_session(start: Start) -> None:
    one = start()
    kept = one.settings.data_dir / "leaves"
    kept.write_text(json.dumps({"leaves": 7, "times": [time.time()] * MOST}))
    for watcher in watchers_of(one):
        os.kill(watcher, signal.SIGKILL)  # the next one reads the file
    until(lambda: b"tried again" in one.log.read_bytes())
    until(lambda: len(watchers_of(one)) == 1 and is_watched(one))
    one.kill()
    until(lambda: b"has died, for the 4th time within 60 s" in one.log.read_bytes())
    until(lambda: not watchers_of(one))
    assert not leaves(one)


def test_a_leave_waits_for_a_broker_that_is_away(tmp_path: Path) -> None:
    cluster = KafkaCluster(tmp_path / "kafka")
    cluster.start()
    try:
        own = module_settings(cluster, tmp_path, session_timeout_s=SESSION_S)
        with WorkerProcess(own, tmp_path / "one.log") as one:
            one.wait_owning(own.partitions)
            until(lambda: is_watched(one))
            cluster.nodes[0].kill()
            one.kill()
            assert len(watchers_of(one)) == 1
            cluster.nodes[0].start()
            until(lambda: leaves(one))
            until(lambda: not watchers_of(one))
            assert leaves(one)[0][1] == b"the group goes on without it"
    finally:
        cluster.kill()


@pytest.fixture
async def asked(start: Start) -> AsyncIterator[tuple[WorkerProcess, Client, dict[str, str]]]:
    """Answers of six seconds are under way."""
    one = await asyncio.to_thread(start)
    async with Client(one.settings) as client:
        users = [client.user() for _ in range(8)]
        asked = {user: await client.ask(user, max_tokens=120) for user in users}
        for user, request_id in asked.items():
            await client.begun(user, request_id)
        yield one, client, asked


async def test_a_leave_for_a_worker_that_lives_costs_no_answer_and_a_former_member_is_unknown(
    asked: tuple[WorkerProcess, Client, dict[str, str]],
) -> None:
    one, client, requests = asked
    group = one.settings.group
    member = await member_of(one.settings)
    goodbye = Goodbye(one.settings.cluster, group)
    assert await goodbye.leave(member, 60.0) is LeaveOutcome.LEFT
    for user, request_id in requests.items():
        answer = await client.answer(user, request_id)
        assert len(answer.tokens) == 120
    assert one.exit_code is None
    async with asyncio.timeout(120):  # the answers may be over before it joins again
        while await member_of(one.settings) in {"", member}:
            await asyncio.sleep(0.1)
    await client.asked(client.user(), max_tokens=1)  # it has its partitions, and its watcher the new member
    assert await goodbye.leave(member, 60.0) is LeaveOutcome.UNKNOWN
    await goodbye.close()
    await asyncio.to_thread(one.kill)
    until(lambda: leaves(one))
    assert leaves(one)[0][1] == b"the group goes on without it", "it knows the member of the second join"


@pytest.mark.parametrize(
    ("answers", "outcome"),
    [([0], LeaveOutcome.LEFT), ([-1], LeaveOutcome.UNKNOWN), ([TimeoutError(), -1], LeaveOutcome.LEFT)],
)
async def test_a_member_that_an_unanswered_try_removed_has_left(
    monkeypatch: pytest.MonkeyPatch, answers: list[int | Exception], outcome: LeaveOutcome
) -> None:
    left = iter(answers)

    async def ask(_goodbye: Goodbye, _member: str) -> int:
        answer = next(left)
        if isinstance(answer, Exception):
            raise answer
        return UnknownMemberIdError.errno if answer else 0

    monkeypatch.setattr(Goodbye, "_ask", ask)
    assert await Goodbye(Settings(_env_file=None).cluster, "group").leave("member", 60.0) is outcome


async def member_of(settings: Settings) -> str:
    """What the group calls its only member; nothing while it has none."""
    admin = AIOKafkaAdminClient(**settings.cluster.options())
    await admin.start()
    try:
        (described,) = await admin.describe_consumer_groups([settings.group])
        (members,) = [group[5] for group in described.groups]
    finally:
        await admin.close()
    return str(members[0][0]) if members else ""


def test_the_worker_of_a_container_may_die_before_its_pid_1(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    other = start("other")
    monkeypatch.setattr(WorkerProcess, "program", (sys.executable, "-m", "app.process.init", str(FAUST)))
    init = start("one")
    (program, *_) = children_of(init.pid)
    before = moved(other)
    os.kill(program, signal.SIGKILL)
    until(lambda: moved(other) > before)
    assert init.wait(120.0) == 137
    until(lambda: leaves(init))  # its line may come behind the rebalance


@pytest.fixture
def sidecar(settings: Settings, tmp_path: Path) -> Iterator[Callable[[], subprocess.Popen[bytes]]]:
    started: list[subprocess.Popen[bytes]] = []
    watched = settings.model_copy(update={"watch": str(tmp_path / "watch.sock")})

    def start() -> subprocess.Popen[bytes]:
        with (tmp_path / "sidecar.log").open("ab") as log:
            command = [str(FAUST.with_name("parley")), "watch"]
            started.append(subprocess.Popen(command, env=environment_of(watched), stderr=log, cwd=tmp_path))
        return started[-1]

    yield start
    for one in started:
        one.kill()
        one.wait()


def connected(watcher: subprocess.Popen[bytes], path: str) -> int:
    """How many workers; one socket more is what listens."""
    return sum(one.laddr == path for one in psutil.Process(watcher.pid).net_connections("unix")) - 1


def test_a_sidecar_leaves_for_workers_that_hang_up(
    start: Start, sidecar: Callable[[], subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    path, log = str(tmp_path / "watch.sock"), tmp_path / "sidecar.log"
    one = start("one", watch=path)
    assert b"no watcher" in one.log.read_bytes(), "a worker starts without it"
    first = sidecar()
    other = start("other", watch=path)
    until(lambda: connected(first, path) == 2)
    time.sleep(1.5)  # a watcher that ends within a second of its start is told once, with those that are missing
    first.kill()
    first.wait()
    second = sidecar()
    until(lambda: len(re.findall(rb"has hung up", one.log.read_bytes() + other.log.read_bytes())) == 2)
    until(lambda: connected(second, path) == 2 and is_watched(one) and is_watched(other))
    assert (path_mode := (tmp_path / "watch.sock").stat().st_mode & 0o777) == 0o600, oct(path_mode)
    before = moved(other)
    one.kill()
    until(lambda: moved(other) > before)
    second.terminate()
    time.sleep(1.0)
    assert second.poll() is None, "it waits for its last worker"
    assert other.stop() == 0
    assert second.wait(120.0) == 0
    assert len(re.findall(LEAVES, log.read_bytes())) == 1, "none for a worker that has left in order"


@pytest.mark.parametrize("line", [b"5", b'{"process": null}', b'{"process": 1e999}', b"[" * 60_000], ids=range(4))
def test_a_line_that_cannot_be_read_tells_the_watcher_nothing(line: bytes) -> None:
    (ward := Ward("w", 1, "m")).hear(line)
    assert ward == Ward("w", 1, "m")


@pytest.mark.parametrize(
    "kept", ["", "[]", "{}", '{"leaves": 1e999, "times": []}', '{"leaves": 1, "times": 3}'], ids=range(5)
)
def test_a_file_of_leaves_that_cannot_be_read_counts_none(tmp_path: Path, kept: str) -> None:
    (tmp_path / "leaves").write_text(kept)
    assert not Brake(tmp_path / "leaves").holds()


async def test_a_child_that_dies_as_it_begins_is_waited_for(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Dead(subprocess.Popen[bytes]):
        def __init__(self, command: list[str], **options: Any) -> None:
            super().__init__(["/bin/false", *command[1:]], **options)
            os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)

    monkeypatch.setattr("app.watch.watcher.subprocess.Popen", Dead)
    (tmp_path / "instance").write_text("w")
    watcher, before = Watcher(settings.model_copy(update={"data_dir": tmp_path})), children_of(os.getpid())
    for _ in range(3):
        watcher.start()
    assert children_of(os.getpid()) == before


async def test_a_sidecar_keeps_the_leaves_of_workers_that_are_there_or_have_died_of_late(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    sidecar, now = Sidecar(settings.cluster, settings.group, SESSION_S), time.time()
    for number in range(100):
        monkeypatch.setattr("app.watch.brake.time.time", lambda at=now + number: at)
        sidecar._brake_of(Ward(f"w{number}")).note()
    assert len(sidecar._brakes) == WITHIN_S
    assert sidecar._brake_of(Ward("w99")).leaves == 1
