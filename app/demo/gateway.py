"""The demo's gateway: `parley gateway`, in the background."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from app.local.ports import LOOPBACK, free_port, port_is_free
from app.local.process import BackgroundProcess

START_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 15.0


class DemoGateway:
    def __init__(self, folder: Path, port: int) -> None:
        self._folder = folder.absolute()
        self._wanted = port
        self.address = ""
        self.process = BackgroundProcess("the gateway", f"parley.folder={self._folder}", self._folder / "gateway.log")

    def spawn(self, settings: Mapping[str, str]) -> None:
        """Start it at the port of the settings, or at a free one if that is in use."""
        self._folder.mkdir(parents=True, exist_ok=True)
        port = self._wanted if self._wanted and port_is_free(self._wanted) else free_port()
        self.address = f"http://{LOOPBACK}:{port}"
        parley = str(Path(sys.executable).with_name("parley"))
        options = ["gateway", "--host", LOOPBACK, "--port", str(port)]
        self.process.spawn([sys.executable, "-X", self.process.marker, parley, *options], {**os.environ, **settings})

    def wait_until_ready(self) -> None:
        self.process.wait_until(self._listens, START_TIMEOUT_S)

    def stop(self) -> bool:
        return self.process.stop(STOP_TIMEOUT_S)

    def _listens(self) -> bool:
        """It binds only once its topics exist, and prints its address once it reads them."""
        return self.address in self.process.log.read_text(errors="replace")
