"""milvus-lite as a separate server, so that several processes can use it and none is blocked by it."""

from __future__ import annotations

import signal
import sys
from importlib.util import find_spec
from pathlib import Path

from app.local.errors import LocalError
from app.local.ports import LOOPBACK, answers
from app.local.process import BackgroundProcess
from app.local.report import Report, silent

START_TIMEOUT_S = 90.0
# HTTP/2: the client preface and empty settings.
HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"


class MilvusNode:
    """One milvus-lite server; its folder keeps its data across restarts."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder = folder.absolute()
        self.port = port
        self.process = BackgroundProcess("Milvus", f"parley.folder={self.folder}", self.folder / "milvus.log")

    @property
    def uri(self) -> str:
        return f"http://{LOOPBACK}:{self.port}"

    @property
    def pid(self) -> int | None:
        return self.process.pid

    def start(self, timeout: float = START_TIMEOUT_S, report: Report = silent) -> None:
        self.spawn(report)
        self.wait_ready(timeout)

    def spawn(self, _report: Report = silent) -> None:
        if find_spec("milvus_lite") is None:
            raise LocalError("milvus-lite is missing: pip install 'parley[local]'")
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        # Its own default binds every address, without any authentication.
        server = "import sys; from milvus_lite.cmdline import main; sys.exit(main())"
        where = ["--data-dir", f"{self.folder}/data", "--host", LOOPBACK, "--port", str(self.port)]
        self.process.spawn([sys.executable, "-X", self.process.marker, "-c", server, "server", *where])

    def wait_ready(self, timeout: float = START_TIMEOUT_S) -> None:
        self.process.wait_until(self.answers, timeout)

    def answers(self) -> bool:
        return answers(self.port, HELLO)

    def stop(self, timeout: float = 15.0) -> bool:
        return self.process.stop(timeout)

    def kill(self) -> None:
        self.process.kill()

    def restart(self) -> None:
        self.stop()
        self.start()

    def suspend(self) -> None:
        """Suspend it: clients see a server that hangs."""
        self.process.signal(signal.SIGSTOP)

    def resume(self) -> None:
        self.process.signal(signal.SIGCONT)
