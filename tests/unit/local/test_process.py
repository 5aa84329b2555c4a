"""Background processes: found by their command line, never by a recorded process id."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from app.local.process import BackgroundProcess
from app.local.report import LocalError

SLEEP = "import time; print('here', flush=True); time.sleep(60)"
STUBBORN = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('here', flush=True); time.sleep(60)"
)
WITH_CHILD = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {SLEEP!r}])"


@pytest.fixture
def process(tmp_path: Path) -> Iterator[BackgroundProcess]:
    one = BackgroundProcess("Sleeper", f"parley.folder={tmp_path}", tmp_path / "log")
    yield one
    one.kill()


def _spawn(process: BackgroundProcess, code: str) -> None:
    process.spawn([sys.executable, "-X", process.marker, "-c", code])
    process.wait_until(lambda: "here" in process.log.read_text(), timeout=120)


def test_another_process_finds_it_without_any_file(process: BackgroundProcess, tmp_path: Path) -> None:
    _spawn(process, SLEEP)
    assert BackgroundProcess("Sleeper", process.marker, tmp_path / "log").pid == process.pid


def test_it_has_a_session_of_its_own(process: BackgroundProcess) -> None:
    _spawn(process, SLEEP)
    assert process.pid is not None
    assert os.getsid(process.pid) == process.pid


def test_a_process_that_only_mentions_the_folder_is_left_alone(process: BackgroundProcess, tmp_path: Path) -> None:
    other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)", str(tmp_path)])
    try:
        assert process.pid is None
        assert process.stop() is False
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


def test_stop_ends_one_that_ignores_sigterm(process: BackgroundProcess) -> None:
    _spawn(process, STUBBORN)
    pid = process.pid
    assert process.stop(timeout=0.2) is True
    assert pid is not None
    assert not psutil.pid_exists(pid)


def test_stop_ends_a_suspended_one(process: BackgroundProcess) -> None:
    _spawn(process, SLEEP)
    process.signal(signal.SIGSTOP)
    assert process.stop(timeout=10) is True
    assert process.pid is None


def test_kill_takes_its_children_along(process: BackgroundProcess) -> None:
    _spawn(process, WITH_CHILD)
    assert process.pid is not None
    children = psutil.Process(process.pid).children()
    assert children
    process.kill()
    assert not any(child.is_running() for child in children)


def test_one_that_ends_while_it_starts_is_told_with_its_last_words(process: BackgroundProcess) -> None:
    process.spawn([sys.executable, "-X", process.marker, "-c", "raise OSError('no space left')"])
    with pytest.raises(LocalError, match=r"Sleeper exited: OSError: no space left") as caught:
        process.wait_until(lambda: False, timeout=120)
    assert "\n" not in str(caught.value)
    assert process.pid is None
