"""A server that runs in the background and is found again by its command line."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil

from app.local.ports import LOOPBACK
from app.local.report import LocalError, Report, silent

LOG_TAIL = 300
_ANSWER_S = 2.0


@contextmanager
def signals_held() -> Iterator[None]:
    """Delay Ctrl-C and SIGTERM until the block has ended: during a spawn they would lose the process."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    received: list[int] = []
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, lambda got, _frame: received.append(got)) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for got in received:
            signal.raise_signal(got)


class BackgroundProcess:
    """One server process in a session of its own; `marker` is an argument that no other process has."""

    def __init__(self, name: str, marker: str, log: Path) -> None:
        self.name = name
        self.marker = marker
        self.log = log
        self._pid: int | None = None

    @property
    def pid(self) -> int | None:
        """Pid of the running process, also if another process started it."""
        self._reap()
        if self._pid is not None and self._is_ours(self._pid):
            return self._pid
        self._pid = next((pid for pid in psutil.pids() if self._is_ours(pid)), None)
        return self._pid

    def spawn(self, argv: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        """Start it detached: no terminal, output to the log, its pid the leader of a new session."""
        if self.marker not in argv:
            raise ValueError(f"{self.marker} must be an argument of {argv[0]}")
        self.log.parent.mkdir(parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        self._pid = os.posix_spawn(
            argv[0],
            list(argv),
            os.environ if environment is None else environment,
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, str(self.log), flags, 0o600),
                (os.POSIX_SPAWN_DUP2, 1, 2),
            ],
            setsid=True,
        )

    def wait_until(self, ready: Callable[[], bool], timeout: float) -> None:
        deadline = time.monotonic() + timeout
        while not ready():
            self.require_alive()
            if time.monotonic() > deadline:
                raise LocalError(f"{self.name} was not ready after {timeout:.0f} s; see {self.log}")
            time.sleep(0.05)

    def require_alive(self) -> None:
        """Raise with the last line of the log if the process has exited."""
        self._reap()
        if self._pid is None or not psutil.pid_exists(self._pid):
            raise LocalError(f"{self.name} exited: {self._last_words()} (log: {self.log})")

    def stop(self, timeout: float = 20.0) -> bool:
        """SIGTERM, then SIGKILL; returns when the whole session is gone. False if nothing was running."""
        pid = self.pid
        if pid is None:
            return False
        session = _session(pid)
        self.signal(signal.SIGTERM)
        self.signal(signal.SIGCONT)
        _, left = psutil.wait_procs(session, timeout=timeout)
        _end(left)
        self._pid = None
        return True

    def kill(self) -> None:
        """SIGKILL, like a crash; returns when it is gone."""
        pid = self.pid
        if pid is not None:
            _end(_session(pid))
            self._pid = None

    def signal(self, number: int) -> None:
        pid = self.pid
        if pid is not None:
            os.kill(pid, number)

    def _is_ours(self, pid: int) -> bool:
        try:
            process = psutil.Process(pid)
            # A fork of this process that has not called exec yet still has our own command line.
            return self.marker in process.cmdline() and process.uids().real == os.getuid()
        except psutil.Error:
            return False

    def _reap(self) -> None:
        if self._pid is None:
            return
        try:
            ended, _ = os.waitpid(self._pid, os.WNOHANG)
        except ChildProcessError:
            return  # not our child
        if ended:
            self._pid = None

    def _last_words(self) -> str:
        try:
            lines = self.log.read_text(errors="replace").splitlines()
        except OSError:
            lines = []
        telling = [line for line in lines if any(word in line for word in ("ERROR", "FATAL", "Exception", "Error:"))]
        return (telling or lines or ["the log is empty"])[-1].strip()[:LOG_TAIL]


class LocalServer(ABC):
    """A server on one port; its folder keeps its data across restarts."""

    def __init__(self, process: BackgroundProcess, folder: Path, port: int, hello: bytes, timeout_s: float) -> None:
        """`hello`: what a client sends first, and the server answers. `timeout_s`: for a start."""
        self.process = process
        self.folder = folder
        self.port = port
        self._hello = hello
        self._timeout_s = timeout_s

    @property
    def pid(self) -> int | None:
        return self.process.pid

    def start(self, timeout: float | None = None, report: Report = silent) -> None:
        """Start it and wait until it accepts connections."""
        self.spawn(report)
        self.wait_ready(timeout)

    @abstractmethod
    def spawn(self, report: Report = silent) -> None:
        """Start it without waiting."""

    def wait_ready(self, timeout: float | None = None) -> None:
        self.process.wait_until(self.answers, timeout or self._timeout_s)

    def answers(self) -> bool:
        """Whether it answers a protocol handshake; a hung server still accepts connections."""
        try:
            with socket.create_connection((LOOPBACK, self.port), timeout=_ANSWER_S) as connection:
                connection.sendall(self._hello)
                return bool(connection.recv(1))
        except OSError:
            return False

    def stop(self, timeout: float = 20.0) -> bool:
        return self.process.stop(timeout)

    def kill(self) -> None:
        self.process.kill()

    def restart(self) -> None:
        self.stop()
        self.start()

    def suspend(self) -> None:
        """Suspend it: it is silent, as behind a broken network."""
        self.process.signal(signal.SIGSTOP)

    def resume(self) -> None:
        self.process.signal(signal.SIGCONT)


def _session(leader: int) -> list[psutil.Process]:
    """The leader and all processes of its session, including forked children."""
    return [process for process in psutil.process_iter() if _in_session(process.pid, leader)]


def _in_session(pid: int, leader: int) -> bool:
    try:
        return os.getsid(pid) == leader or pid == leader
    except OSError:
        return False


def _end(processes: list[psutil.Process]) -> None:
    for process in processes:
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue
    _, left = psutil.wait_procs(processes, timeout=10.0)
    if left:
        raise LocalError(f"still there after SIGKILL: {[process.pid for process in left]}")
