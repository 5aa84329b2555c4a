"""A real worker process under test: started, stopped, killed, suspended."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self

from app.local.ports import free_port
from app.settings import Settings
from tests.environment import environment_of
from tests.warm_start import started

FAUST = Path(sys.executable).with_name("faust")
ROOT = Path(__file__).parents[2]
START_TIMEOUT_S = 120.0


class WorkerProcess:
    """`faust -A app worker` with these settings; its log is a file.

    With a `plug`, one of tests/faults/plugs.py and a number, a fault is built in. Its wall clock is ahead by `skew_s`.
    """

    program: ClassVar[tuple[str, ...]] = (str(FAUST),)
    start_timeout_s: ClassVar[float] = START_TIMEOUT_S

    def __init__(
        self,
        settings: Settings,
        log: Path,
        plug: tuple[str, int] | None = None,
        *,
        skew_s: float = 0.0,
        level: str = "info",
        **environment: str,
    ) -> None:
        self.settings = settings
        self.log = log
        self.level = level
        self.web_port = free_port()
        self.plug = plug
        self._began_at = 0
        self._environment = environment
        if skew_s:
            clock = str(Path(__file__).with_name("clock"))
            self._environment |= {"FAULT_CLOCK_SKEW_S": str(skew_s), "PYTHONPATH": os.pathsep.join((clock, str(ROOT)))}
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> Self:
        environment = environment_of(self.settings)
        environment |= {"PYTHONUNBUFFERED": "1", "PYTHONPATH": str(ROOT), **self._environment}
        arguments = ["-A", "app", "worker", "-l", self.level, "--web-port", str(self.web_port)]
        command = [*self.program, *arguments]
        if self.plug is not None:
            name, at = self.plug
            command = [sys.executable, "-m", "tests.faults.plugs", name, str(at), "--", *arguments]
        # Modules of another place are not those that the server of warm starts has imported.
        start = subprocess.Popen if "PYTHONPATH" in self._environment else started
        with self.log.open("ab") as log:
            self._began_at = log.tell()
            self._process = start(command, stdout=log, stderr=log, env=environment, cwd=self.log.parent)
        return self

    def wait_owning(self, partitions: int, since: int = 0) -> None:
        """Wait until the log has `partitions` take-overs after its first `since` bytes."""
        self._wait_logged(rb": epoch ", partitions, since)

    def wait_assigned(self) -> None:
        """Until the group has given it its partitions, which may be none."""
        self._wait_logged(rb": epoch |gives this worker no partitions", 1, self._began_at)

    def wait_logged(self, pattern: bytes) -> None:
        """Until this process has logged it."""
        self._wait_logged(pattern, 1, self._began_at)

    def _wait_logged(self, pattern: bytes, times: int, since: int) -> None:
        deadline = time.monotonic() + self.start_timeout_s
        while len(re.findall(pattern, self.log.read_bytes()[since:])) < times:
            if self.exit_code is not None or time.monotonic() > deadline:
                raise AssertionError(f"the worker did not start ({self.exit_code}):\n{self.tail()}")
            time.sleep(0.05)

    def wait_joined(self) -> None:
        """Until the group has given it a partition."""
        self.wait_owning(1, self._began_at)

    @property
    def exit_code(self) -> int | None:
        return None if self._process is None else self._process.poll()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill -9, and gone when this returns."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def stop(self, timeout_s: float = 120.0) -> int:
        """SIGTERM; returns the exit code."""
        assert self._process is not None
        if self._process.poll() is None:
            self._process.terminate()
        return self._process.wait(timeout_s)

    def wait(self, timeout_s: float) -> int:
        """Until it ends by itself; returns the exit code."""
        assert self._process is not None
        return self._process.wait(timeout_s)

    def tail(self, lines: int = 60) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def last_words(self) -> str:
        """Why it ended, in one line."""
        reasons = [line for line in self.tail().splitlines() if line.startswith("parley: ") or "CRITICAL" in line]
        return reasons[-1][:200] if reasons else "no reason given"

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.kill()
