"""The processes under measure: started, watched for what they use, stopped."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path

import psutil

from app.settings import PREFIX
from tests.benchmarks.peers.pinning import NAME as ENGINE_THREAD

ROOT = Path(__file__).parents[2]
TICK_S = 1 / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Used:
    """Processor seconds since the start, of the engine's thread and of all others; resident bytes; open files."""

    engine_s: float
    other_s: float
    memory: int
    files: int

    def since(self, before: Used) -> Used:
        return Used(self.engine_s - before.engine_s, self.other_s - before.other_s, self.memory, self.files)

    def beside(self, other: Used) -> Used:
        """Both together."""
        return Used(*(mine + its for mine, its in zip(astuple(self), astuple(other), strict=True)))


def processor_s(pids: Iterable[int]) -> float:
    """Processor seconds of all these processes since their start."""
    times = [psutil.Process(pid).cpu_times() for pid in pids]
    return sum(one.user + one.system for one in times)


def used(pid: int) -> Used:
    process = psutil.Process(pid)
    engine = other = 0.0
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            name, rest = (task / "stat").read_text().split("(", 1)[1].rsplit(")", 1)
        except OSError:
            continue  # it has just ended
        fields = rest.split()
        seconds = (int(fields[11]) + int(fields[12])) * TICK_S
        if name == ENGINE_THREAD:
            engine += seconds
        else:
            other += seconds
    return Used(engine, other, process.memory_info().rss, process.num_fds())


class Served:
    """A Python module as a process that prints `ready` once it can be asked."""

    def __init__(
        self, module: str, arguments: Sequence[str], log: Path, environment: Mapping[str, str], *, packages: str = ""
    ) -> None:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith((PREFIX, "BENCH_"))}
        path = os.pathsep.join(filter(None, [packages, str(ROOT)]))
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", module, *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=inherited | {"PYTHONPATH": path, "TOKENIZERS_PARALLELISM": "false", **environment},
                cwd=log.parent,
            )
        self._log = log

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait_ready(self) -> None:
        while line := self.read():
            if line.strip() == b"ready":
                return
        raise RuntimeError(f"it did not start: {self._log.read_text(errors='replace')[-2000:]}")

    def write(self, line: bytes) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + b"\n")
        self._process.stdin.flush()

    def read(self) -> bytes:
        assert self._process.stdout is not None
        return self._process.stdout.readline()

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
