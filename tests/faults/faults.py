"""The faults, each a tiny class: `inflict` returns when the fault is over, not when everybody is well again."""

from __future__ import annotations

import asyncio
import shutil
import signal
from dataclasses import dataclass
from typing import Protocol

from tests.faults.arena import Arena
from tests.faults.proxy import Proxy
from tests.faults.worker_process import WorkerProcess

EXIT_WRONG_USE = 2


class Fault(Protocol):
    @property
    def name(self) -> str: ...

    async def inflict(self, arena: Arena) -> None: ...


@dataclass(frozen=True)
class KillWorker:
    """kill -9 at any moment."""

    name: str = "worker killed"

    async def inflict(self, arena: Arena) -> None:
        await asyncio.sleep(2 * arena.random.random())
        kill(arena, arena.any())


@dataclass(frozen=True)
class KillInside:
    """The end at a seam inside: the worker is started anew with a plug that kills it there, or makes it give up."""

    plug: str
    most: int
    code: int = -signal.SIGKILL

    @property
    def name(self) -> str:
        return f"{'worker killed: ' if self.code < 0 else ''}{self.plug}"

    async def inflict(self, arena: Arena) -> None:
        name = arena.any()
        arena.workers[name].kill()
        arena.start(name, (self.plug, arena.random.randint(1, self.most)))
        arena.expected.add(name)
        code = await arena.ended(name)
        arena.watch.interrupted()
        if code != self.code:
            arena.exits[f"exit {code} of {self.plug} instead of {self.code}"] += 1


@dataclass(frozen=True)
class Zombie:
    """SIGSTOP for longer than the session while another worker takes over, then SIGCONT."""

    name: str = "worker suspended past its session"

    async def inflict(self, arena: Arena) -> None:
        name = arena.any()
        spare = None if len(arena.workers) > 1 else arena.start("spare")
        if spare is not None:
            await asyncio.to_thread(spare.wait_joined)
        worker = arena.workers[name]
        arena.watch.interrupted()
        worker.signal(signal.SIGSTOP)
        await asyncio.sleep(arena.settings.session_timeout_s + 4.0)
        worker.signal(signal.SIGCONT)
        await asyncio.sleep(3.0)
        if spare is not None:
            await asyncio.to_thread(leave, arena, "spare")


@dataclass(frozen=True)
class RebalanceStorm:
    """Workers join and leave while answers are generated."""

    joining: int = 2
    name: str = "workers joined and left"

    async def inflict(self, arena: Arena) -> None:
        names = [f"storm-{number}" for number in range(self.joining)]
        for name in names:
            arena.watch.interrupted()
            await asyncio.to_thread(arena.start(name).wait_joined)
        for name in names:
            arena.watch.interrupted()
            await asyncio.to_thread(leave, arena, name)


@dataclass(frozen=True)
class RollingRestart:
    """Each worker is asked to end and starts again, one after the other, as in an upgrade."""

    name: str = "rolling restart"

    async def inflict(self, arena: Arena) -> None:
        for name in sorted(arena.workers):
            arena.watch.interrupted()
            await asyncio.to_thread(leave, arena, name)
            await asyncio.to_thread(arena.start(name).wait_assigned)
            await arena.speaking()


@dataclass(frozen=True)
class BrokerBounced:
    """A clean restart."""

    name: str = "broker restarted"

    async def inflict(self, arena: Arena) -> None:
        arena.watch.interrupted()
        await asyncio.to_thread(arena.random.choice(arena.cluster.nodes).restart)


@dataclass(frozen=True)
class BrokerKilled:
    away_s: float = 2.0

    @property
    def name(self) -> str:
        return f"broker killed for {self.away_s:g} s"

    async def inflict(self, arena: Arena) -> None:
        node = arena.random.choice(arena.cluster.nodes)
        arena.watch.interrupted()
        node.kill()
        await asyncio.sleep(self.away_s)
        await asyncio.to_thread(node.start)


@dataclass(frozen=True)
class BrokerSilent:
    """SIGSTOP: connections stay open, and nothing answers."""

    for_s: float = 12.0
    name: str = "broker suspended for 12 s"

    async def inflict(self, arena: Arena) -> None:
        node = arena.random.choice(arena.cluster.nodes)
        arena.watch.interrupted()
        node.suspend()
        try:
            await asyncio.sleep(self.for_s)
        finally:
            node.resume()


@dataclass(frozen=True)
class DataWiped:
    name: str = "data directory wiped"

    async def inflict(self, arena: Arena) -> None:
        name = arena.any()
        worker = arena.workers.pop(name)
        arena.watch.interrupted()
        worker.kill()
        shutil.rmtree(arena.data_dir(name))
        arena.start(name)


@dataclass(frozen=True)
class DataStale:
    """An old copy of the tables comes back."""

    name: str = "data directory of some time ago"

    async def inflict(self, arena: Arena) -> None:
        name = arena.any()
        tables, old = arena.data_dir(name) / "tables", arena.folder / "old"
        worker = arena.workers.pop(name)
        worker.kill()
        shutil.copytree(tables, old, dirs_exist_ok=True)
        arena.start(name)
        await arena.speaking()
        await asyncio.sleep(3.0)
        worker = arena.workers.pop(name)
        arena.watch.interrupted()
        worker.kill()
        shutil.rmtree(tables)
        shutil.move(old, tables)
        arena.start(name)


@dataclass(frozen=True)
class DataCorrupted:
    name: str = "data directory corrupted"

    async def inflict(self, arena: Arena) -> None:
        name = arena.any()
        worker = arena.workers.pop(name)
        arena.watch.interrupted()
        worker.kill()
        for file in (arena.data_dir(name) / "tables").rglob("*"):
            if file.is_file() and file.suffix in {".log", ".sst", ""}:
                content = bytearray(file.read_bytes())
                for _ in range(min(50, len(content))):
                    content[arena.random.randrange(len(content))] ^= 0xFF
                file.write_bytes(content)
        arena.start(name)


@dataclass(frozen=True)
class DataLocked:
    """Another worker is started in the folder of one that runs: it must refuse, and the others go on."""

    name: str = "data directory locked"

    async def inflict(self, arena: Arena) -> None:
        name = arena.any()
        second = WorkerProcess(arena.workers[name].settings, arena.folder / "second.log").start()
        try:
            code = await asyncio.to_thread(second.wait, 120.0)
        finally:
            second.kill()
        lines = second.log.read_text().splitlines()
        if code != EXIT_WRONG_USE or sum("PARLEY_DATA_DIR" in line for line in lines) != 1 or "Traceback" in lines:
            arena.exits[f"exit {code} in a folder that is another's: {lines[-1:]}"] += 1


@dataclass(frozen=True)
class KilledTogether:
    """A broker and a worker at once, so that the worker starts while Kafka does not answer."""

    away_s: float = 8.0
    name: str = "broker and worker killed"

    async def inflict(self, arena: Arena) -> None:
        node = arena.random.choice(arena.cluster.nodes)
        node.kill()
        kill(arena, arena.any())
        await asyncio.sleep(self.away_s)
        await asyncio.to_thread(node.start)


@dataclass(frozen=True)
class Plugged:
    """The worker is started with a fault built in, and ends of it or lives with it for a while."""

    plug: str
    at: int
    for_s: float
    name: str

    async def inflict(self, arena: Arena) -> None:
        name = arena.any()
        arena.workers.pop(name).kill()
        arena.watch.interrupted()
        arena.start(name, (self.plug, self.at))
        arena.expected.add(name)
        await asyncio.sleep(self.for_s)
        arena.expected.discard(name)
        arena.workers.pop(name).kill()
        arena.start(name)


@dataclass(frozen=True)
class Network:
    """A worker behind a proxy that is slow, half-open for longer than the session, or resets connections."""

    how: str

    @property
    def name(self) -> str:
        return f"network {self.how}"

    async def inflict(self, arena: Arena) -> None:
        name = arena.any()
        async with Proxy(arena.cluster.nodes[0].port) as proxy:
            arena.workers.pop(name).kill()
            arena.watch.interrupted()
            await asyncio.to_thread(arena.start(name, ("through_proxy", proxy.port)).wait_joined)
            await arena.speaking()
            arena.watch.interrupted()
            if self.how == "slow":
                proxy.delay_s = 0.2
                await asyncio.sleep(10.0)
                proxy.delay_s = 0.0
            elif self.how == "half-open":
                proxy.silent = True
                await asyncio.sleep(arena.settings.session_timeout_s + 6.0)
                proxy.silent = False
                proxy.reset()
            else:
                for _ in range(5):
                    proxy.reset()
                    await asyncio.sleep(1.0)
            await arena.speaking()
            kill(arena, name)


def kill(arena: Arena, name: str) -> None:
    worker = arena.workers.pop(name)
    arena.watch.interrupted()
    worker.kill()
    arena.start(name)


def leave(arena: Arena, name: str) -> None:
    code = arena.workers.pop(name).stop()
    if code != 0:
        arena.exits[f"exit {code} at SIGTERM"] += 1


KILLS: tuple[tuple[float, Fault], ...] = (
    (6.0, KillWorker()),
    (1.0, KillInside("kill_in_transaction", 30)),
    (1.0, KillInside("kill_after_commit", 30)),
    (1.0, KillInside("kill_after_token", 400)),
    (1.0, KillInside("kill_after_done", 30)),
)
OTHERS: tuple[Fault, ...] = (
    Zombie(),
    RebalanceStorm(),
    BrokerBounced(),
    BrokerKilled(2.0),
    BrokerSilent(),
    DataWiped(),
    DataStale(),
    DataCorrupted(),
    Plugged("disk_full", 40, 25.0, "disk full"),
    Plugged("clock_jumps", 10, 20.0, "clock jumped by an hour"),
    Plugged("loop_hangs", 100, 25.0, "event loop stood still past the session"),
    Network("slow"),
    Network("half-open"),
    Network("reset"),
    DataLocked(),
    KilledTogether(),
)
