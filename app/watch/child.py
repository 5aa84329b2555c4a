"""The watcher as the worker's child: `python -m app.watch.child SOCKET PIDFD PROCESS`, started by watcher.py.

It imports neither settings nor engine, so that it stays small; what it needs comes as the first line. It has a session
of its own: a terminal's Ctrl-C and a closed terminal are for the worker. SIGTERM is ignored, because supervisors send
it to each process of a service, also to what is left of one whose main process has died.

It ends soon after the worker, whatever happens: an alarm of the kernel ends it if nothing else does.
"""

from __future__ import annotations

import asyncio
import json
import os
import select
import signal
import socket
import sys
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from app.kafka.cluster import Cluster
from app.watch.brake import Brake
from app.watch.goodbye import Goodbye
from app.watch.post import MOST_BYTES, Ward, leave_for, listen, log_as, report_line

_LATEST_S = 5
"""After the session, for what may hang."""
_LAST_WORDS_S = 0.1
_DYING_S = 2.0


def first_line(cluster: Cluster, group: str, session_s: float, memory: Path, log_format: str) -> bytes:
    """What a child has to know. It goes through the socket: arguments and environments can be read by others."""
    known = {
        "cluster": asdict(cluster),
        "group": group,
        "session_s": session_s,
        "memory": memory,
        "log_format": log_format,
    }
    return json.dumps(known, default=str).encode() + b"\n"


def _cluster(known: dict[str, Any]) -> Cluster:
    paths = {name: Path(known[name]) for name in ("ca_file", "cert_file", "key_file") if known[name] is not None}
    return Cluster(**{**known, **paths, "servers": tuple(known["servers"])})


async def watch(connection: socket.socket, pidfd: int, process: int) -> None:
    """Until the worker has left, or is gone and left for."""
    reader, writer = await asyncio.open_connection(sock=connection, limit=MOST_BYTES)
    line = await reader.readline()
    if not line:
        return
    known = json.loads(line)
    log_as(known["log_format"])
    brake = Brake(Path(known["memory"]))
    goodbye = Goodbye(_cluster(known["cluster"]), known["group"])

    def tell(ready: bool) -> None:
        if not writer.is_closing():
            writer.write(report_line(ready, brake))

    keeping = asyncio.create_task(goodbye.keep_ready(tell))
    worker = Ward()
    is_gone = await _gone(worker, reader, pidfd, process)
    keeping.cancel()
    with suppress(asyncio.CancelledError):
        await keeping
    if is_gone and not worker.has_left:
        signal.setitimer(signal.ITIMER_REAL, known["session_s"] + _LATEST_S)
        await leave_for(worker, goodbye, known["group"], brake, known["session_s"])


async def _gone(worker: Ward, reader: asyncio.StreamReader, pidfd: int, process: int) -> bool:
    """Whether the worker is gone; False if it has left or hung up."""
    loop, dead = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(pidfd, dead.set)
    listening, dying = asyncio.create_task(listen(worker, reader)), asyncio.create_task(dead.wait())
    await asyncio.wait({listening, dying}, return_when=asyncio.FIRST_COMPLETED)
    loop.remove_reader(pidfd)
    if dead.is_set():  # its last line may still be there, and a fork of it may hold the socket open
        await asyncio.wait({listening}, timeout=_LAST_WORDS_S)
        return True
    return not worker.has_left and await asyncio.to_thread(_is_dying, pidfd, process)


def _is_dying(pidfd: int, process: int) -> bool:
    """Whether the process behind a socket that has ended is gone, or on its way.

    The kernel takes its memory, then its files, and tells the pidfd at last: with a GPU that is seconds later. A
    process without memory has no command line.
    """
    try:
        has_memory = bool(Path(f"/proc/{process}/cmdline").read_bytes())
    except OSError:
        has_memory = False
    return not has_memory or bool(select.select([pidfd], [], [], _DYING_S)[0])


def main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    file, pidfd, process = map(int, sys.argv[1:])
    with socket.socket(fileno=file) as connection:
        connection.setblocking(False)
        asyncio.run(watch(connection, pidfd, process))
    os._exit(0)


if __name__ == "__main__":
    main()
