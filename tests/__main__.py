"""`make test`: the whole suite as runs of pytest, four at once, each with a log of its own under `build`.

Tests of the integration wait for real servers at times, so four runs keep two cores busy. Those that are computation
only have a slightly lower priority, so that they do not slow down what depends on time, and most of them begin last.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import TextIO

from app.local.kafka import KafkaCluster, archive_of_classes
from app.local.report import LocalError

LOGS = Path("build")
PROGRESS_S = 60.0
AT_ONCE = 4
MOST_SHOWN = 100_000
"""Letters of a log, the last ones. The log itself has all."""
RUNS = {
    "worker": ["tests/integration/worker"],
    "gateway": ["tests/integration/gateway"],
    "others": ["tests"],
    "models": ["tests/unit/models"],
    "commands": ["tests/integration/commands", "tests/integration/local", "tests/integration/demo"],
    "faults": ["tests/faults"],
    "browser": ["tests/browser"],
    "simulation": ["tests/simulation"],
    "unit": ["tests/unit"],
}
SLOWEST = ("--durations=15", "--durations-min=4")
"""Shown at the end of each log."""
COMPUTED = frozenset({"models", "unit", "simulation"})
NICENESS = 5
ENGINES = Path(".venv/engines")


@dataclass
class Run:
    """One of pytest. `paths` are folders, without those that other runs name."""

    name: str
    paths: Sequence[str]
    log: TextIO
    began: float = 0.0
    seconds: float = 0.0
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        ignored = [f"--ignore={path}" for paths in RUNS.values() for path in paths if path not in self.paths]
        pytest = [sys.executable, "-u", "-m", "pytest", "-p", "no:cacheprovider", *SLOWEST, *self.paths, *ignored]
        niceness = NICENESS if self.name in COMPUTED else 0
        self.began = time.monotonic()
        # In a session of its own, or Ctrl-C would reach it twice, the second time while its fixtures end their servers.
        self.process = subprocess.Popen(
            ["nice", "-n", str(niceness), *pytest],
            stdout=self.log,
            stderr=self.log,
            env=environment(),
            start_new_session=True,
        )

    @property
    def is_running(self) -> bool:
        if self.process is None or self.seconds:
            return False
        if self.process.poll() is None:
            return True
        self.seconds = time.monotonic() - self.began
        return False

    @property
    def has_failed(self) -> bool:
        return self.process is None or self.process.returncode != 0

    def progress(self) -> str:
        percents = re.findall(r"\[ *(\d+%)]$", self.text(), re.MULTILINE)
        return f"{self.name} {percents[-1] if percents else '0%'}"

    def text(self) -> str:
        return Path(self.log.name).read_text(errors="replace")


def environment() -> dict[str, str]:
    """Python writes bytecode: hundreds of processes are started, and each would compile Parley anew."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def main() -> int:
    LOGS.mkdir(exist_ok=True)
    signal.signal(signal.SIGTERM, _interrupt)
    with ExitStack() as stack:
        runs: list[Run] = []
        stack.callback(_stop, runs)
        for name, paths in RUNS.items():
            log = stack.enter_context((LOGS / f"test-{name}.log").open("w"))
            runs.append(Run(name, paths, log))
        print(f"logs: {', '.join(run.log.name for run in runs)}", flush=True)
        _archive_classes()
        _finish(runs)
        failed = [run.name for run in runs if run.has_failed]
        for run in sorted(runs, key=lambda run: run.has_failed):
            print(f"\n{'=' * 30} {run.name} {'=' * 30}\n{run.text()[-MOST_SHOWN:]}", flush=True)
        print(", ".join(f"{run.name} {run.seconds:.0f} s" for run in runs))
    if (ENGINES / ".installed").exists():
        engines = [str(ENGINES / "bin/python"), "-m", "pytest", "-p", "no:cacheprovider", "tests/engines"]
        if subprocess.run(engines, check=False).returncode:
            failed.append("engines")
    else:
        print("tests/engines is skipped: `make engines` has not made its environment")
    print(f"failed: {', '.join(failed)}" if failed else "all tests passed")
    return bool(failed)


def _archive_classes() -> None:
    """A broker leaves them when it is stopped; those of the tests are many, and most are killed."""
    with suppress(LocalError), TemporaryDirectory() as folder:
        if archive_of_classes().path.is_file():
            return
        cluster = KafkaCluster(Path(folder))
        cluster.start()
        cluster.stop()


def _finish(runs: Sequence[Run]) -> None:
    """Start each as soon as fewer than `AT_ONCE` are running, and wait for all."""
    waiting, shown_at = list(runs), time.monotonic()
    while (running := [run for run in runs if run.is_running]) or waiting:
        for run in waiting[: AT_ONCE - len(running)]:
            waiting.remove(run)
            run.start()
        time.sleep(0.2)
        if time.monotonic() - shown_at > PROGRESS_S:
            shown_at = time.monotonic()
            print(", ".join(run.progress() for run in runs), flush=True)


def _stop(runs: Sequence[Run]) -> None:
    """As Ctrl-C would: pytest's fixtures end their servers."""
    left = [run.process for run in runs if run.process is not None and run.process.poll() is None]
    for process in left:
        process.send_signal(signal.SIGINT)
    for process in left:
        process.wait()


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
