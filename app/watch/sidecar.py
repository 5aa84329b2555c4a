"""The watcher as a process that workers connect to: `parley watch`.

In a pod it is a container of its own, because what kills a container kills all its processes: a kubelet lets the kernel
kill the whole of it when memory is short. The socket lies on a volume of both, and only its own user may open it.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from app.kafka.cluster import Cluster
from app.watch.brake import Brake
from app.watch.goodbye import Goodbye
from app.watch.post import MOST_BYTES, Ward, leave_for, listen, report_line


class SocketInUseError(Exception):
    """Another process listens there; the message is one line."""


class Sidecar:
    """SIGTERM ends it once its last worker has hung up: a pod's containers all get one. Ctrl-C ends it at once."""

    def __init__(self, cluster: Cluster, group: str, session_s: float) -> None:
        self._goodbye = Goodbye(cluster, group)
        self._group = group
        self._session_s = session_s
        self._brakes: dict[str, Brake] = {}
        """Of workers by their names, as long as one is there or its last leave counts."""
        self._workers: dict[asyncio.Task[None], tuple[Ward, asyncio.StreamWriter]] = {}
        self._ready = False
        self._ends = asyncio.Event()

    async def serve(self, path: Path) -> None:
        """Until a signal. Raises `SocketInUseError` and `OSError`."""
        loop = asyncio.get_running_loop()
        with _bound(path) as listener:
            server = await asyncio.start_unix_server(self._accept, sock=listener, limit=MOST_BYTES)
            keeping = asyncio.create_task(self._goodbye.keep_ready(self._tell))
            try:
                loop.add_signal_handler(signal.SIGTERM, self._ends.set)
                await self._ends.wait()
                while self._workers:
                    await asyncio.wait([*self._workers])
            finally:
                keeping.cancel()
                with suppress(asyncio.CancelledError):
                    await keeping
                server.close()
                await self._goodbye.close()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task, ward = asyncio.current_task(), Ward()
        assert task is not None, "a connection has a task of its own"
        self._workers[task] = ward, writer
        try:
            writer.write(report_line(self._ready, Brake()))
            await listen(ward, reader)
            if not ward.has_left:
                await leave_for(ward, self._goodbye, self._group, self._brake_of(ward), self._session_s)
        finally:
            del self._workers[task]
            writer.close()

    def _tell(self, ready: bool) -> None:
        self._ready = ready
        for ward, writer in self._workers.values():
            if not writer.is_closing():
                writer.write(report_line(ready, self._brakes.get(ward.name) or Brake()))

    def _brake_of(self, ward: Ward) -> Brake:
        here = {one.name for one, _ in self._workers.values()}
        self._brakes = {name: one for name, one in self._brakes.items() if name in here or one.lately}
        return self._brakes.setdefault(ward.name, Brake())


@contextmanager
def _bound(path: Path) -> Iterator[socket.socket]:
    """A socket at this path, which a former process may have left behind."""
    with socket.socket(socket.AF_UNIX) as listener:
        with socket.socket(socket.AF_UNIX) as probe, suppress(FileNotFoundError, ConnectionRefusedError):
            probe.connect(str(path))
            raise SocketInUseError(f"{path} is in use by another watcher: stop that one, or set PARLEY_WATCH")
        path.unlink(missing_ok=True)
        before = os.umask(0o177)
        try:
            listener.bind(str(path))
        finally:
            os.umask(before)
        try:
            yield listener
        finally:
            path.unlink(missing_ok=True)
