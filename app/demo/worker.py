"""The demo's worker: `faust -A app worker`, in the background."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from app.local.ports import LOOPBACK, free_port
from app.local.process import BackgroundProcess

# Running answers get its grace period, PARLEY_DRAIN_S.
STOP_TIMEOUT_S = 30.0


class DemoWorker:
    def __init__(self, folder: Path) -> None:
        self._folder = folder.absolute()
        self.process = BackgroundProcess("the worker", f"parley.folder={self._folder}", self._folder / "worker.log")

    def spawn(self, settings: Mapping[str, str]) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        faust = str(Path(sys.executable).with_name("faust"))
        web = ["--web-bind", LOOPBACK, "--web-host", LOOPBACK, "--web-port", str(free_port())]
        self.process.spawn(
            [sys.executable, "-X", self.process.marker, faust, "-A", "app", "worker", "-l", "warn", *web],
            {**os.environ, "PARLEY_DATA_DIR": str(self._folder / "data"), **settings},
        )

    def stop(self) -> bool:
        return self.process.stop(STOP_TIMEOUT_S)
