"""`make test`: the whole suite as one queue of files, for several processes of pytest with a log each under `build`.

What takes longest comes first; `build/durations` tells the next run. Tests with servers wait for them at times, so more
processes than cores keep these busy. Two of the processes have a slightly lower priority and begin with what is
computation only, so that it does not slow down what depends on time. What compares times comes alone, after all others.
All share one Kafka and one Milvus.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, Pipe, wait
from pathlib import Path
from types import FrameType

from tests.from_queue import VARIABLE, processor_s
from tests.shared_servers import running_servers

LOGS = Path("build")
DURATIONS = LOGS / "durations"
PROGRESS_S = 60.0
NICENESS = (0, 0, 0, 0, 5, 5)
"""Of each process."""
MOST_SHOWN = 100_000
"""Letters of a log, the last ones. The log itself has all."""
DEAREST = 20
"""Parts shown at the end, by what they have cost the processor."""
SLOWEST = ("--durations=15", "--durations-min=4")
"""Shown at the end of each log."""
COMPUTED = ("tests/unit", "tests/simulation")
TOGETHER = ("clients", "gateway", "packages", "programs", "search")
"""Folders of `tests/integration` whose files share servers."""
MOST_TOGETHER = 7
"""Files of such a folder in one part of the queue: a start of its servers takes some 5 s, a file 10 to 60."""
_DEAR = ("gateway", "clients", "programs", "packages", "demo", "commands", "worker", "search", "security")
LONGEST = ("tests/faults", *(f"tests/integration/{one}" for one in _DEAR), "tests/operations", "tests/browser")
"""They come first, in this order, where no run has left durations: else the last ones keep one process for a minute."""
ALONE = ("tests/integration/worker/test_milvus_away.py",)
"""They compare times of several processes, which only a quiet machine tells."""
ELSEWHERE = "tests/engines"
"""It has an environment of its own."""
ENGINES = Path(".venv/engines")


class Queue:
    """Parts that nobody has begun, the longest first."""

    def __init__(self, parts: Iterable[str], durations: Mapping[str, float]) -> None:
        # What nobody knows may be long.
        ranks = {part: [at for at, long in enumerate(LONGEST) if part.startswith(long)] for part in parts}
        unknown = {part: 1e6 - rank[0] if rank else 1e3 for part, rank in ranks.items()}
        self.waiting = sorted(unknown, key=lambda part: (-(durations.get(part) or unknown[part]), part))

    def next(self, niceness: int) -> str | None:
        """For a process of low priority rather a computed one, for another one rather one with servers."""
        fitting = (part for part in self.waiting if part.startswith(COMPUTED) == bool(niceness))
        part = next(fitting, self.waiting[0] if self.waiting else None)
        if part is not None:
            self.waiting.remove(part)
        return part


@dataclass
class Run:
    """A process of pytest."""

    name: str
    niceness: int
    part: str | None = None
    failures: list[str] = field(default_factory=list)
    """Parts."""
    reports: list[str] = field(default_factory=list)
    """Of failed tests."""
    process: subprocess.Popen[bytes] | None = None
    connection: Connection | None = None

    @property
    def log(self) -> Path:
        return LOGS / f"test-{self.name}.log"

    @property
    def has_failed(self) -> bool:
        return bool(self.failures) or self.process is None or self.process.wait() != 0

    def start(self, part: str, variables: Mapping[str, str]) -> None:
        self.part = part
        self.connection, theirs = Pipe()
        with theirs, self.log.open("w") as log:
            pytest = [sys.executable, "-u", "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "tests.from_queue"]
            # In a session of its own, or Ctrl-C would reach it twice, again while its fixtures end their servers.
            self.process = subprocess.Popen(
                ["nice", "-n", str(self.niceness), *pytest, *SLOWEST, *part.split()],
                stdout=log,
                stderr=log,
                env={**environment(), **variables, VARIABLE: str(theirs.fileno())},
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )

    def interrupt(self) -> None:
        """As Ctrl-C would: pytest's fixtures end their servers."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)


class Suite:
    def __init__(self, parts: Iterable[str], variables: Mapping[str, str], niceness: Iterable[int] = NICENESS) -> None:
        self.durations: dict[str, float] = {}
        self.costs: dict[str, float] = {}
        self.queue = Queue(parts, durations_before())
        self._parts = frozenset(self.queue.waiting)
        self._alone = [part for part in self.queue.waiting if part.startswith(ALONE)]
        self.queue.waiting = [part for part in self.queue.waiting if part not in self._alone]
        self.runs = [Run(f"{number}", nice) for number, nice in enumerate(niceness, start=1)]
        self._variables = variables

    def finish(self) -> None:
        self._finish(self.runs)
        if self._alone and not self.queue.waiting:
            self.queue.waiting, self._alone = self._alone, []
            self.runs.append(Run("alone", 0))
            self._finish(self.runs[-1:])

    def _finish(self, runs: Iterable[Run]) -> None:
        for run in runs:
            if (part := self.queue.next(run.niceness)) is not None:
                run.start(part, self._variables)
        shown_at = time.monotonic()
        while waited := {run.connection: run for run in self.runs if run.connection is not None}:
            for connection in wait(waited, timeout=1.0):
                self._hand_out(waited[connection])
            if time.monotonic() - shown_at > PROGRESS_S:
                shown_at = time.monotonic()
                print(self.progress(), flush=True)

    def stop(self) -> None:
        for run in self.runs:
            run.interrupt()
        for run in self.runs:
            if run.process is not None:
                run.process.wait()

    def keep_durations(self) -> None:
        """Those of parts that have not ended stay as they were."""
        known = {part: seconds for part, seconds in durations_before().items() if part in self._parts} | self.durations
        longest = sorted(known.items(), key=lambda one: -one[1])
        DURATIONS.write_text("".join(f"{seconds:.1f} {part}\n" for part, seconds in longest))

    def failed(self) -> list[str]:
        """Parts; those that were not run, and the log of a process that has failed without a part, too."""
        failed = [part for run in self.runs for part in run.failures]
        failed += [str(run.log) for run in self.runs if run.process and run.has_failed and not run.failures]
        return failed + self.queue.waiting + self._alone

    def dearest(self) -> str:
        """A line for each, with the seconds of the processor before those of the clock."""
        dearest = sorted(self.costs.items(), key=lambda one: -one[1])[:DEAREST]
        return "\n".join(f"{cost:7.1f} {self.durations[part]:7.1f}  {_shown(part)}" for part, cost in dearest)

    def progress(self) -> str:
        now = ", ".join(_shown(run.part) for run in self.runs if run.part)
        failures = sum(len(run.failures) for run in self.runs)
        return f"{len(self.durations)} of {len(self._parts)} done, {failures} failed; {now}"

    def _hand_out(self, run: Run) -> None:
        assert run.connection is not None
        assert run.process is not None
        try:
            done = run.connection.recv()
        except EOFError:  # its end, or its death
            if run.part is not None:
                run.failures.append(run.part)
            run.connection.close()
            run.process.wait()
            run.connection, run.part = None, None
            return
        assert run.part is not None
        self.durations[run.part] = done.seconds
        self.costs[run.part] = done.processor_s
        if done.failures:
            run.failures.append(run.part)
            run.reports += done.reports
        run.part = self.queue.next(run.niceness)
        run.connection.send(run.part)


def parts_of(root: Path = Path("tests")) -> set[str]:
    """Files, and several of those that share servers, with spaces between them."""
    files = {file for file in root.rglob("test_*.py") if not file.is_relative_to(ELSEWHERE)}
    parts = set()
    for folder in (root / "integration" / name for name in TOGETHER):
        shared = sorted(file for file in files if file.is_relative_to(folder))
        files.difference_update(shared)
        groups = -(-len(shared) // MOST_TOGETHER)
        parts |= {" ".join(map(str, shared[first::groups])) for first in range(groups)}
    return parts | {str(file) for file in files}


def _shown(part: str) -> str:
    first, *others = part.removeprefix("tests/").split()
    return f"{first} and {len(others)} more" if others else first


def durations_before() -> dict[str, float]:
    if not DURATIONS.is_file():
        return {}
    lines = (line.split(maxsplit=1) for line in DURATIONS.read_text().splitlines())
    return {part: float(seconds) for seconds, part in lines}


def environment() -> dict[str, str]:
    """Python writes bytecode: hundreds of processes are started, and each would compile Parley anew."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def main() -> int:
    LOGS.mkdir(exist_ok=True)
    signal.signal(signal.SIGTERM, _interrupt)
    began = time.monotonic()
    with ExitStack() as stack:
        suite = Suite(parts_of(), stack.enter_context(running_servers()))
        stack.callback(suite.keep_durations)
        stack.callback(suite.stop)
        print(f"logs: {', '.join(str(run.log) for run in suite.runs)}", flush=True)
        suite.finish()
    for run in sorted(suite.runs, key=lambda run: run.has_failed):
        print(f"\n{'=' * 30} {run.log} {'=' * 30}\n{run.log.read_text(errors='replace')[-MOST_SHOWN:]}", flush=True)
    for report in (report for run in suite.runs for report in run.reports):
        print(f"{report}\n", flush=True)  # once more at the end, since the logs are long
    print(f"the dearest, in seconds of the processor and of the clock:\n{suite.dearest()}\n")
    seconds = f"{time.monotonic() - began:.0f} s and {processor_s():.0f} s of the processor"
    print(f"{len(suite.durations)} parts in {seconds}; their durations: {DURATIONS}")
    failed = suite.failed()
    if (ENGINES / ".installed").exists():
        engines = [str(ENGINES / "bin/python"), "-m", "pytest", "-p", "no:cacheprovider", "tests/engines"]
        if subprocess.run(engines, check=False).returncode:
            failed.append("tests/engines")
    else:
        print("tests/engines is skipped: `make engines` has not made its environment")
    print(f"failed: {', '.join(failed)}" if failed else "all tests passed")
    return bool(failed)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
