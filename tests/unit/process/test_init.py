"""PID 1 of a container, as a plain process: Linux gives it orphans because it asks for them."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

INIT = (sys.executable, "-I", "-m", "app.process.init")


@pytest.mark.parametrize(("script", "code"), [("exit 0", 0), ("exit 7", 7), ("kill -9 $$", 137), ("kill -15 $$", 143)])
def test_it_ends_as_its_program_does(script: str, code: int) -> None:
    assert subprocess.run([*INIT, "sh", "-c", script], check=False, timeout=60).returncode == code


def test_a_program_that_does_not_exist_is_told_in_one_line() -> None:
    ran = subprocess.run([*INIT, "/nowhere"], check=False, timeout=60, capture_output=True, text=True)
    assert (ran.returncode, ran.stderr) == (127, "parley: /nowhere: No such file or directory\n")


def test_what_a_killed_program_has_started_may_end_first() -> None:
    began = time.monotonic()
    ran = subprocess.run(
        [*INIT, "sh", "-c", "(sleep 1; echo late) & kill -9 $$"],
        check=False,
        timeout=60,
        capture_output=True,
        text=True,
    )
    assert (ran.returncode, ran.stdout) == (137, "late\n")
    assert time.monotonic() - began > 0.9


@pytest.fixture
def running(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A program that counts its signals, and leaves zombies to its parent's parent."""
    script = "trap 'echo signal' INT TERM; echo ready; for n in 1 2 3; do (true &) ; done; while :; do sleep 0.05; done"
    with subprocess.Popen([*INIT, "sh", "-c", script], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process
        (program,) = children(process.pid)
        subprocess.run(["kill", "-9", str(program)], check=True)


def children(process: int) -> list[int]:
    return [int(one) for one in Path(f"/proc/{process}/task/{process}/children").read_text().split()]


def test_signals_are_handed_on_once_and_orphans_are_reaped(running: subprocess.Popen[str]) -> None:
    assert running.stdout is not None
    for number in (signal.SIGTERM, signal.SIGINT):
        running.send_signal(number)
        assert running.stdout.readline() == "signal\n"
    until = time.monotonic() + 60
    while len(children(running.pid)) > 1:
        assert time.monotonic() < until, "the program alone; the orphans are reaped"
        time.sleep(0.01)
    assert running.poll() is None
