"""The worker's end: it starts its watcher, or connects to one, tells it what the group calls this worker, and tends it.

Nothing here is needed for an answer: whatever fails is logged, tried again, and costs the advantage alone.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
import subprocess
import sys
import time
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path

from app.settings import Settings
from app.telemetry.watch_figures import WatchFigures
from app.watch.child import first_line
from app.watch.post import UNREADABLE

log = logging.getLogger(__name__)

_AGAIN_S = (1.0, 30.0)
"""Between two starts of a child; a sidecar is asked each second."""
_LONG_S = 60.0
"""A watcher that has lived for so long is started again at once."""
_END_S = 1.0
_ROOT = Path(__file__).parents[2]


class Watcher:
    """Make it in the worker's process; `start` it before the engine, then `serve`."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._line = b""
        """The member of the last join."""
        self._connection: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._serving: asyncio.Task[None] | None = None
        self._over = asyncio.Event()
        self._why = ""
        self.figures = WatchFigures()
        os.register_at_fork(after_in_child=self._hang_up)

    @property
    def is_on(self) -> bool:
        return self._settings.watch != "off"

    def start(self) -> None:
        """Start a child; a sidecar is asked in `serve`. Both are tried again there."""
        if self._settings.watch == "child":
            self._open()

    def serve(self) -> None:
        """Tend the watcher for as long as the event loop runs, or until `left`."""
        if self.is_on:
            self._serving = asyncio.ensure_future(self._serve())

    def joined(self, member: str) -> None:
        """The group calls this worker so from now on."""
        self._line = _line(member=member)
        self._say(self._line)

    async def left(self) -> None:
        """The group has confirmed that this worker has left: the watcher has nothing to do, and ends."""
        self._over.set()
        self._say(_line(left=True))
        if self._serving is not None:
            await asyncio.wait({self._serving}, timeout=_END_S)

    def _say(self, line: bytes) -> None:
        if self._writer is not None:
            self._writer.write(line)

    async def _serve(self) -> None:
        pause_s, tries = _AGAIN_S[0], 0
        while True:
            began = time.monotonic()
            why = await self._one()
            if self._over.is_set():
                return
            lived_s = time.monotonic() - began
            if lived_s > _LONG_S:
                pause_s = _AGAIN_S[0]
            tries += 1
            self.figures = replace(self.figures, ready=False, restarts=self.figures.restarts + 1)
            # One that is missing, or ends as it begins, is told once.
            level = logging.WARNING if tries == 1 or lived_s > _AGAIN_S[0] else logging.DEBUG
            session_s = self._settings.session_timeout_s
            log.log(level, "%s; tried again. Until then the group notices a death within %g s", why, session_s)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._over.wait(), pause_s)
                return
            pause_s = min(2 * pause_s, _AGAIN_S[1]) if self._settings.watch == "child" else _AGAIN_S[0]

    async def _one(self) -> str:
        """One watcher, until it ends; returns why."""
        connection = self._connection or self._open()
        self._connection = None
        if connection is None:
            return self._why
        connection.setblocking(False)
        reader, self._writer = await asyncio.open_connection(sock=connection)
        try:
            self._say(self._line)
            while line := await reader.readline():
                self._heard(line)
        except (OSError, *UNREADABLE):
            pass  # it is gone, or another program listens there
        finally:
            self._writer.close()
            self._writer = None
        if self._process is None:
            return f"the watcher at {self._settings.watch} has hung up"
        code = await asyncio.to_thread(_ended, self._process)
        self._process = None
        return f"the watcher has ended ({code})"

    def _heard(self, line: bytes) -> None:
        report = json.loads(line)
        self.figures = replace(self.figures, ready=bool(report["ready"]), leaves=int(report["leaves"]))

    def _open(self) -> socket.socket | None:
        """The worker's end of a socket, on which it has introduced itself; else `_why` says what is wrong."""
        try:
            if self._settings.watch == "child":
                return self._start_child()
            return self._connected()
        except OSError as error:
            self._why = f"no watcher ({self._settings.watch}): {error.strerror or error}"
            return None

    def _connected(self) -> socket.socket:
        with ExitStack() as unless_connected:
            connection = unless_connected.enter_context(socket.socket(socket.AF_UNIX))
            connection.connect(self._settings.watch)
            connection.sendall(_line(worker=self._name(), process=os.getpid()))
            unless_connected.pop_all()
        return connection

    def _start_child(self) -> socket.socket:
        """Raises `OSError`, also for a child that dies as it begins: it is waited for."""
        with ExitStack() as unless_started:
            ours, theirs = socket.socketpair()
            unless_started.enter_context(ours)
            unless_started.callback(self._bury)
            self._process = self._child(theirs)
            settings = self._settings
            known = (settings.cluster, settings.group, settings.session_timeout_s)
            ours.sendall(first_line(*known, settings.data_dir / "leaves", settings.log_format))
            ours.sendall(_line(worker=self._name(), process=os.getpid()))
            unless_started.pop_all()
        self._connection = ours
        return ours

    def _bury(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    @staticmethod
    def _child(theirs: socket.socket) -> subprocess.Popen[bytes]:
        pidfd = os.pidfd_open(os.getpid())
        paths = filter(None, (str(_ROOT), os.environ.get("PYTHONPATH", "")))
        with theirs:
            command = ["-m", "app.watch.child", str(theirs.fileno()), str(pidfd), str(os.getpid())]
            try:
                return subprocess.Popen(  # noqa: S603 - our own program
                    [sys.executable, *command],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    pass_fds=(theirs.fileno(), pidfd),
                    start_new_session=True,
                    env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
                )
            finally:
                os.close(pidfd)

    def _name(self) -> str:
        """Of this worker in all its lives: its static name in the group."""
        return (self._settings.data_dir / "instance").read_text().strip()

    def _hang_up(self) -> None:
        """In a fork of this process, which may outlive it: the socket ends with the worker alone."""
        with suppress(OSError):
            if self._writer is not None:
                os.close(self._writer.get_extra_info("socket").fileno())
            elif self._connection is not None:
                os.close(self._connection.fileno())


def _line(**fields: object) -> bytes:
    return json.dumps(fields).encode() + b"\n"


def _ended(process: subprocess.Popen[bytes]) -> int:
    """The exit code of a watcher whose socket has ended."""
    try:
        return process.wait(_END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()
