"""Processes under test that start warm: forked from one that has imported what they import.

A cold worker needs two seconds of a processor, a gateway more than one, and most of that are imports. A server, one for
each process of pytest, does these once, and reads no setting. For each start it forks twice, and the process between
ends at once: what is started becomes a child of the process of pytest, which is the reaper of orphans meanwhile. It has
the arguments, the environment, the folder and the files of a cold start, and runs the same script.

Starts that are interrupted or refused are cold, as are those of the suites beside pytest.
"""

from __future__ import annotations

import ast
import atexit
import ctypes
import gc
import importlib
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any

ROOT = Path(__file__).parents[1]
PRELOADED = ("app/application.py", "app/worker.py", "app/commands/gateway.py")
"""What these import; `app.application` itself reads the settings."""
_SUBREAPER = 36
"""`PR_SET_CHILD_SUBREAPER`."""
_MOST_BYTES = 150_000
_IS_ON = [False]


@contextmanager
def warm_starts(*, on: bool = True) -> Iterator[None]:
    before, _IS_ON[0] = _IS_ON[0], on
    try:
        yield
    finally:
        _IS_ON[0] = before


def started(command: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:
    """As `subprocess.Popen`, and warm where that is on."""
    return (WarmProcess if _IS_ON[0] else subprocess.Popen)(command, **options)


class WarmProcess(subprocess.Popen[bytes]):
    def _execute_child(  # type: ignore[no-untyped-def]
        self, args, executable, preexec_fn, close_fds, pass_fds, cwd, env, *rest
    ) -> None:
        output, error = rest[6], rest[8]
        about = {"args": [str(one) for one in args], "cwd": str(cwd), "env": dict(env)}
        self.pid = _server().start(about, [output, error])
        self._child_created = True


class WarmServer:
    def __init__(self) -> None:
        self._one_at_a_time = Lock()
        self._connection, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-u", "-m", "tests.warm_start", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                cwd=ROOT,
            )

    def start(self, about: Mapping[str, Any], files: Sequence[int]) -> int:
        """The process, which is a child of this one."""
        prctl = ctypes.CDLL(None).prctl
        with self._one_at_a_time:
            prctl(_SUBREAPER, 1, 0, 0, 0)
            try:
                socket.send_fds(self._connection, [json.dumps(about).encode()], list(files))
                process, between_has_ended = self._connection.recv(64), self._connection.recv(64)
            finally:
                prctl(_SUBREAPER, 0, 0, 0, 0)
        assert between_has_ended, "the server of warm starts has died"
        return int(process)

    def close(self) -> None:
        self._connection.close()
        self._process.wait()


@cache
def _server() -> WarmServer:
    server = WarmServer()
    atexit.register(server.close)
    return server


def _preload() -> None:
    for file in PRELOADED:
        for node in ast.walk(ast.parse((ROOT / file).read_text())):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    importlib.import_module(alias.name)
            elif isinstance(node, ast.ImportFrom) and node.module:
                importlib.import_module(node.module)


def serve(connection: socket.socket) -> None:
    """Returns in a process that has been started, too, which goes on as what it shall be."""
    gc.disable()
    _preload()
    gc.freeze()
    gc.enable()
    while True:
        message, files, _, _ = socket.recv_fds(connection, _MOST_BYTES, 2)
        if not message:
            os._exit(0)
        if (between := os.fork()) == 0:
            if (process := os.fork()) == 0:
                connection.close()
                become(json.loads(message), files)
                return
            connection.send(str(process).encode())
            os._exit(0)
        os.waitpid(between, 0)
        connection.send(b"it has ended")
        for file in files:
            os.close(file)


def become(about: Mapping[str, Any], files: Sequence[int]) -> None:
    for file, number in zip(files, (1, 2), strict=True):
        os.dup2(file, number)
        os.close(file)
    os.chdir(about["cwd"])
    os.environ.clear()
    os.environ.update(about["env"])
    sys.argv = about["args"]
    signal.signal(signal.SIGINT, signal.default_int_handler)


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    serve(socket.socket(fileno=int(sys.argv[1])))
    if sys.argv[0] == sys.executable:
        _, option, module, *arguments = sys.argv
        assert option == "-m", sys.argv
        sys.argv = [module, *arguments]
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    else:
        sys.path[0] = str(Path(sys.argv[0]).parent)
        runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
