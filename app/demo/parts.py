"""The processes of the demo: a worker, a gateway and a tool program, in the background."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Coroutine, Mapping
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from app.demo.order_tool import tools
from app.local.ports import LOOPBACK, free_port, port_is_free
from app.local.process import BackgroundProcess

GATEWAY_START_S = 30.0
_CHECK_EVERY_S = 0.5
T = TypeVar("T")


class DemoPart:
    """`name` is also the name of its log. `stop_s`: how long a stop may take."""

    name: str
    stop_s = 15.0

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()
        log = self.folder / f"{self.name}.log"
        self.process = BackgroundProcess(f"the {self.name}", f"parley.folder={self.folder}", log)

    def stop(self) -> bool:
        return self.process.stop(self.stop_s)

    def _spawn(self, settings: Mapping[str, str], *arguments: str) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.process.spawn([sys.executable, "-X", self.process.marker, *arguments], {**os.environ, **settings})


class DemoWorker(DemoPart):
    """`faust -A app worker`."""

    name = "worker"
    stop_s = 30.0  # running answers get its grace period, PARLEY_DRAIN_S

    def spawn(self, settings: Mapping[str, str]) -> None:
        web = ["--web-bind", LOOPBACK, "--web-host", LOOPBACK, "--web-port", str(free_port())]
        own = {"PARLEY_DATA_DIR": str(self.folder / "data")}
        self._spawn({**own, **settings}, _program("faust"), "-A", "app", "worker", "-l", "info", *web)


class DemoGateway(DemoPart):
    """`parley gateway`."""

    name = "gateway"

    def __init__(self, folder: Path, port: int) -> None:
        super().__init__(folder)
        self._port = port
        self.address = ""

    def spawn(self, settings: Mapping[str, str]) -> None:
        """Start it at the port of the settings, or at a free one if that is in use."""
        port = self._port if self._port and port_is_free(self._port) else free_port()
        self.address = f"http://{LOOPBACK}:{port}"
        self._spawn(settings, _program("parley"), "gateway", "--host", LOOPBACK, "--port", str(port))

    def wait_until_ready(self) -> None:
        """It binds only once its topics exist, and prints its address once it reads them."""
        self.process.wait_until(lambda: self.address in self.process.log.read_text(errors="replace"), GATEWAY_START_S)


class DemoTools(DemoPart):
    """`python -m app.demo.order_tool`."""

    name = "tool"

    @property
    def definitions(self) -> Path:
        return self.folder / "tools.json"

    def spawn(self, settings: Mapping[str, str]) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.definitions.write_text(json.dumps(tools.definitions))
        self._spawn(settings, "-m", "app.demo.order_tool")


async def while_alive(process: BackgroundProcess, work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`. Raises `LocalError` with the last line of the process's log once it has exited."""
    working = asyncio.ensure_future(work)
    watching = asyncio.ensure_future(_watch(process))
    try:
        await asyncio.wait([working, watching], return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else watching.result()
    finally:
        for task in (working, watching):
            task.cancel()
        await asyncio.gather(working, watching, return_exceptions=True)


async def _watch(process: BackgroundProcess) -> NoReturn:
    while True:
        process.require_alive()
        await asyncio.sleep(_CHECK_EVERY_S)


def _program(name: str) -> str:
    """A script of this environment."""
    return str(Path(sys.executable).with_name(name))
