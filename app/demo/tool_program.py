"""The demo's tool program, in the background."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from app.local.process import BackgroundProcess

STOP_TIMEOUT_S = 15.0


class DemoTools:
    def __init__(self, folder: Path) -> None:
        self._folder = folder.absolute()
        self.definitions = self._folder / "tools.json"
        self.process = BackgroundProcess("the tool", f"parley.folder={self._folder}", self._folder / "tool.log")

    def spawn(self, settings: Mapping[str, str]) -> None:
        from app.demo.order_tool import tools  # noqa: PLC0415 - slow to import; Kafka and Milvus start first

        self._folder.mkdir(parents=True, exist_ok=True)
        self.definitions.write_text(json.dumps(tools.definitions))
        command = [sys.executable, "-X", self.process.marker, "-m", "app.demo.order_tool"]
        self.process.spawn(command, {**os.environ, **settings})

    def stop(self) -> bool:
        return self.process.stop(STOP_TIMEOUT_S)
