"""A real gateway process under test."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

import httpx

from app.local.ports import free_port
from app.settings import Settings
from tests.environment import environment_of
from tests.warm_start import started
from tests.with_constants import command_with

START_TIMEOUT_S = 120.0
NO_LIMIT_OF_ERASURES: Mapping[str, object] = {"app.gateway.edge.bounds.ERASURES_PER_MIN": 0}
ROOT = Path(__file__).parents[3]


class GatewayProcess:
    """`parley gateway` with these settings, on a port of its own; `is_shared`: it shares the partitions.

    `constants` have other values than in the code, by their dotted names.
    """

    def __init__(
        self,
        settings: Settings,
        log: Path,
        *,
        is_shared: bool = False,
        constants: Mapping[str, object] | None = None,
    ) -> None:
        port = free_port()
        own: dict[str, object] = {"gateway_port": port, "gateway_metrics_port": free_port()}
        if is_shared:
            own["gateway_advertise"] = f"http://127.0.0.1:{port}"
        self.settings = settings.model_copy(update=own)
        self.metrics_url = f"http://127.0.0.1:{self.settings.gateway_metrics_port}/metrics"
        self.url = f"http://127.0.0.1:{self.settings.gateway_port}"
        self.log = log
        self._constants = constants or {}
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> Self:
        command = [str(Path(sys.executable).with_name("parley")), "gateway"]
        environment = environment_of(self.settings)
        if self._constants:
            command = command_with(self._constants, "parley", "gateway")
            environment["PYTHONPATH"] = str(ROOT)
        with self.log.open("ab") as log:
            self._process = started(command, stdout=log, stderr=log, env=environment, cwd=self.log.parent)
        deadline = time.monotonic() + START_TIMEOUT_S
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(f"the gateway did not start:\n{self.log.read_text()}")
            time.sleep(0.05)
        return self

    def _answers(self) -> bool:
        try:
            return httpx.get(f"{self.url}/healthz").status_code == 200
        except httpx.TransportError:
            return False

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def stop(self, timeout_s: float = 60.0) -> int:
        """SIGTERM; returns the exit code."""
        assert self._process is not None
        self._process.terminate()
        return self._process.wait(timeout_s)

    def kill(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.kill()
