"""`parley demo` as a person runs it."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.local.cli import processes_below

COMMAND = [str(Path(sys.executable).with_name("parley")), "demo"]
# An engine that is up at once and remembers nothing.
FORGETFUL = {"PARLEY_ENGINE": "paced", "PARLEY_PACED_TOKENS_PER_S": "200", "PARLEY_MAX_TOKENS": "4"}


def _begin(where: Path, *arguments: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*COMMAND, *arguments],
        cwd=where,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.fixture
def where(tmp_path: Path) -> Iterator[Path]:
    """A working directory below which nothing may run at the end."""
    yield tmp_path
    left = processes_below(tmp_path)
    for process in left:
        process.kill()
    assert not left


def test_once_shows_both_talks_what_is_remembered_and_what_is_found(where: Path) -> None:
    demo = _begin(where, "--once")
    out, err = demo.communicate(timeout=250)
    assert demo.returncode == 0, out + err
    assert "nina > " in out
    assert "omar > " in out
    assert any(line.startswith("nina < ") and "48213" in line for line in out.splitlines())
    assert any(line.startswith("omar < ") and "Omar" in line for line in out.splitlines())
    assert "searches for" in out
    assert "the chat page is at http://127.0.0.1:" in out
    assert "done: download" in out
    assert not (where / ".parley/local.env").exists()


def test_a_fact_that_is_not_remembered_fails_in_one_line(where: Path) -> None:
    demo = _begin(where, "--once", **FORGETFUL)
    out, err = demo.communicate(timeout=250)
    assert demo.returncode == 1, out + err
    assert "is not in" in err
    assert len(err.splitlines()) == 1


def test_a_worker_that_cannot_start_fails_with_its_own_words(where: Path) -> None:
    demo = _begin(where, "--once", PARLEY_MODEL=str(where / "nowhere"))
    out, err = demo.communicate(timeout=250)
    assert demo.returncode == 1, out + err
    assert str(where / "nowhere") in err
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_while_it_starts_leaves_nothing(where: Path, number: signal.Signals) -> None:
    demo = _begin(where, **FORGETFUL)
    while len(processes_below(where)) < 2:
        assert demo.poll() is None
    demo.send_signal(number)
    out, err = demo.communicate(timeout=120)
    assert demo.returncode == 0, out + err
    assert "Traceback" not in err


def test_a_second_demo_in_the_same_folder_is_refused(where: Path) -> None:
    folder = where / ".parley/demo"
    folder.mkdir(parents=True)
    with (folder / "demo.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        demo = _begin(where, "--once")
        _, err = demo.communicate(timeout=120)
    assert demo.returncode == 1
    assert "a demo is already running" in err
    assert len(err.splitlines()) == 1
