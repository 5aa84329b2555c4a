"""A milvus-lite server that can be killed and started again."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from pathlib import Path


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Lite:
    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir
        self._port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self.uri = f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        command = [str(Path(sys.executable).with_name("milvus-lite")), "server", "--host", "127.0.0.1"]
        self._process = subprocess.Popen(
            [*command, "--port", str(self._port), "--data-dir", str(self._data_dir)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def ready(self) -> None:
        deadline = time.monotonic() + 60
        while True:
            try:
                socket.create_connection(("127.0.0.1", self._port), timeout=1).close()
            except OSError:
                assert time.monotonic() < deadline, "milvus-lite did not come up"
                time.sleep(0.1)
            else:
                return

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
