"""milvus-lite as a separate server, so that several processes can use it and none is blocked by it."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

from app.local.ports import LOOPBACK
from app.local.process import BackgroundProcess, LocalServer
from app.local.report import LocalError, Report, silent

START_TIMEOUT_S = 90.0
# HTTP/2: the client preface and empty settings.
HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"


class MilvusNode(LocalServer):
    def __init__(self, folder: Path, port: int) -> None:
        folder = folder.absolute()
        process = BackgroundProcess("Milvus", f"parley.folder={folder}", folder / "milvus.log")
        super().__init__(process, folder, port, HELLO, START_TIMEOUT_S)

    @property
    def uri(self) -> str:
        return f"http://{LOOPBACK}:{self.port}"

    def spawn(self, report: Report = silent) -> None:  # noqa: ARG002
        if find_spec("milvus_lite") is None:
            raise LocalError("milvus-lite is missing: install Parley with its extra `local`")
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        # Its own default binds every address, without any authentication.
        server = "import sys; from milvus_lite.cmdline import main; sys.exit(main())"
        where = ["--data-dir", f"{self.folder}/data", "--host", LOOPBACK, "--port", str(self.port)]
        self.process.spawn([sys.executable, "-X", self.process.marker, "-c", server, "server", *where])
