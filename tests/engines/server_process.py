"""A server of somebody else in a process of its own: started, killed, started again on the same port."""

from __future__ import annotations

import http.client
import subprocess
import time
from abc import ABC, abstractmethod
from pathlib import Path
from types import TracebackType
from typing import Self

from app.local.ports import free_port
from tests.engines.processes import children_of

START_S = 600.0
NAME = "demo-served"


class ServerProcess(ABC):
    """`url` is that of OpenAI's API. Its log is a file."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}/v1"
        self.log = folder / "server.log"
        self._process: subprocess.Popen[bytes] | None = None

    @abstractmethod
    def command(self) -> list[str]:
        """For 127.0.0.1 and `port`; the demo's model is `NAME` there."""

    def start(self) -> None:
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(self.command(), stdout=log, stderr=log, start_new_session=True)

    def wait_ready(self) -> None:
        deadline = time.monotonic() + START_S
        while not self._is_ready():
            assert self._process is not None
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(f"the server does not start:\n{self.log.read_text()[-3000:]}")
            time.sleep(0.1)

    def _is_ready(self) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
        try:
            connection.request("GET", "/health")
            return connection.getresponse().status == http.client.OK
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def kill(self) -> None:
        """With all that it has started, as a machine that is switched off."""
        assert self._process is not None
        below = children_of(self._process.pid)
        self._process.kill()
        for process in below:
            if process.lives:
                process.kill()
        self._process.wait()

    def __enter__(self) -> Self:
        self.start()
        try:
            self.wait_ready()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(60)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
