"""`make test`: the whole suite, as four tracks of pytest at once, each with a log of its own under `build`.

Tests of the integration wait for real servers at times, so four tracks keep two cores busy. Unit tests and the
simulation are computation and have a lower priority, so that they do not slow down what depends on time; but a little
only, since they take as long as the others together. What would disturb others of its kind stands behind them in one
track: faults behind the workers' tests, clients behind what is computed.
"""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import TextIO

LOGS = Path("build")
PROGRESS_S = 60.0
TRACKS = {
    "computed": (["tests/unit", "tests/simulation"], ["tests/hostile", "tests/integration/clients"]),
    "worker": (["tests/integration/worker"], ["tests/faults"]),
    "gateway": (["tests/integration/gateway"], ["tests/browser"]),
}
NICENESS = {"computed": 5}
ENGINES = Path(".venv/engines")


@dataclass
class Track:
    """Runs of pytest, one after the other; one that fails does not keep the next one from running."""

    name: str
    runs: list[list[str]]
    log: TextIO
    began: float = field(default_factory=time.monotonic)
    seconds: float = 0.0
    failed: bool = False
    process: subprocess.Popen[bytes] | None = None

    def advance(self) -> bool:
        """Starts the next run if the one before it has ended; False when there is none."""
        if self.process is not None and self.process.poll() is None:
            return True
        if self.process is not None:
            self.failed |= self.process.returncode != 0
            self.process = None
        if self.runs:
            arguments = [sys.executable, "-u", "-m", "pytest", "-p", "no:cacheprovider", *self.runs.pop(0)]
            self.process = subprocess.Popen(
                ["nice", "-n", str(NICENESS.get(self.name, 0)), *arguments], stdout=self.log, stderr=self.log
            )
            return True
        self.seconds = self.seconds or time.monotonic() - self.began
        return False

    def stop(self) -> None:
        """As Ctrl-C would: pytest's fixtures end their servers."""
        self.runs.clear()
        if self.process is not None:
            self.process.send_signal(signal.SIGINT)
            self.process.wait()

    def progress(self) -> str:
        percents = re.findall(r"\[ *(\d+%)]$", self.text(), re.MULTILINE)
        return f"{self.name} {percents[-1] if percents else '0%'}"

    def text(self) -> str:
        return Path(self.log.name).read_text(errors="replace")


def main() -> int:
    LOGS.mkdir(exist_ok=True)
    signal.signal(signal.SIGTERM, _interrupt)
    with ExitStack() as stack:
        tracks = []
        for name, runs in _runs().items():
            log = stack.enter_context((LOGS / f"test-{name}.log").open("w"))
            tracks.append(Track(name, runs, log))
            stack.callback(tracks[-1].stop)
        print("\n".join(f"{track.name}: see {track.log.name}" for track in tracks), flush=True)
        _wait(tracks)
        failed = [track.name for track in tracks if track.failed]
        for track in sorted(tracks, key=lambda track: track.failed):
            print(f"\n{'=' * 30} {track.name} {'=' * 30}\n{track.text()}", flush=True)
        print(", ".join(f"{track.name} {track.seconds:.0f} s" for track in tracks))
    if (ENGINES / ".installed").exists():
        engines = [str(ENGINES / "bin/python"), "-m", "pytest", "-p", "no:cacheprovider", "tests/engines"]
        if subprocess.run(engines, check=False).returncode:
            failed.append("engines")
    else:
        print("tests/engines is skipped: `make engines` has not made its environment")
    print(f"failed: {', '.join(failed)}" if failed else "all tests passed")
    return bool(failed)


def _runs() -> dict[str, list[list[str]]]:
    """Of each track; the last one has what no other names."""
    named = [path for runs in TRACKS.values() for run in runs for path in run]
    others = ["tests", *(f"--ignore={path}" for path in named)]
    return {**{name: list(runs) for name, runs in TRACKS.items()}, "others": [others]}


def _wait(tracks: list[Track]) -> None:
    told = time.monotonic()
    running = tracks
    while running := [track for track in running if track.advance()]:
        time.sleep(0.2)
        if time.monotonic() - told > PROGRESS_S:
            told = time.monotonic()
            print(", ".join(track.progress() for track in tracks), flush=True)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
