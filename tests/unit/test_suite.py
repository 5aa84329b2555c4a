"""`python -m tests`: the whole suite in runs of pytest."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests import __main__ as suite
from tests.__main__ import AT_ONCE, RUNS, Run


def test_runs_name_folders_that_exist_and_none_twice() -> None:
    paths = [path for run in RUNS.values() for path in run]
    assert len(paths) == len(set(paths))
    assert all(Path(path).is_dir() for path in paths)
    assert "tests" in paths, "what no run names is in one of them"


def test_a_run_that_fails_is_told_and_keeps_no_other_from_running(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With more runs than are started at once."""
    most = 0
    runs = []
    for number in range(AT_ONCE + 2):
        test = tmp_path / f"test_{number}.py"
        test.write_text(f"def test_it() -> None:\n    assert {number != 1}\n")
        runs.append(Run(f"{number}", [str(test)], (tmp_path / f"{number}.log").open("w")))

    def count_and_wait(_seconds: float) -> None:
        nonlocal most
        most = max(most, sum(run.is_running for run in runs))
        sleep(0.05)

    sleep = time.sleep
    monkeypatch.setattr(suite.time, "sleep", count_and_wait)
    suite._finish(runs)
    for run in runs:
        run.log.close()
    assert [run.name for run in runs if run.has_failed] == ["1"]
    assert ("1 failed" in runs[1].text(), "1 passed" in runs[5].text()) == (True, True)
    assert runs[5].progress() == "5 100%"
    assert most == AT_ONCE


def test_processes_of_a_run_may_write_bytecode(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    assert "PYTHONDONTWRITEBYTECODE" not in suite.environment()
