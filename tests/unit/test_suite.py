"""`python -m tests`: one queue of test files for several processes of pytest."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import __main__ as suite
from tests.__main__ import Queue, Suite

COUNTED = """
import os
from pathlib import Path
import pytest

@pytest.fixture(scope="session")
def once():
    yield
    Path(__file__).with_name(f"ended-{os.getpid()}").touch()

"""


@pytest.fixture(autouse=True)
def _logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suite, "LOGS", tmp_path)
    monkeypatch.setattr(suite, "DURATIONS", tmp_path / "durations")


def _files(folder: Path, **bodies: str) -> list[str]:
    (folder / "conftest.py").write_text(COUNTED)
    (folder / "pytest.ini").write_text("[pytest]\n")
    for name, body in bodies.items():
        (folder / f"test_{name}.py").write_text(body)
    return [str(folder / f"test_{name}.py") for name in bodies]


def test_every_test_file_is_one_part_or_in_one() -> None:
    files = [Path(file) for part in suite.parts_of() for file in part.split()]
    wanted = [file for file in Path("tests").rglob("test_*.py") if not file.is_relative_to(suite.ELSEWHERE)]
    assert sorted(files) == sorted(wanted)
    assert all(any(str(file).startswith(long) for file in files) for long in suite.LONGEST)


def test_what_takes_longest_comes_first_and_what_is_unknown_before() -> None:
    durations = {"tests/unit/test_a.py": 2.0, "tests/browser/test_b.py": 3.0, "tests/unit/test_c.py": 5.0}
    queue = Queue([*durations, "tests/faults/test_new.py"], durations)
    order = [queue.next(niceness) for niceness in (0, 5, 0, 0, 5)]
    assert tuple(Queue(sorted(suite.LONGEST), {}).waiting) == suite.LONGEST
    files = ["faults/test_new.py", "unit/test_c.py", "browser/test_b.py", "unit/test_a.py"]
    assert order == [*(f"tests/{file}" for file in files), None]


def test_files_are_run_by_processes_with_one_session_each_and_a_failure_is_told(tmp_path: Path) -> None:
    passes, fails = "def test_it(once):\n    pass\n", "def test_it(once):\n    assert False\n"
    files = _files(tmp_path, a=passes, b=fails, c=passes, d="import nothing_of_that_name\n", e=passes, f=passes)
    parts = [*files[:4], " ".join(files[4:])]
    ran = Suite(parts, {}, (0, 5))
    ran.finish()
    assert sorted(ran.failed()) == [parts[1], parts[3]]
    assert sorted(ran.durations) == parts
    assert [run.has_failed for run in ran.runs].count(True) >= 1
    assert ran.progress() == "5 of 5 done, 2 failed; "
    assert len(ran.dearest().splitlines()) == len(parts)
    assert 1 <= len(list(tmp_path.glob("ended-*"))) <= 2
    logs = "".join(run.log.read_text() for run in ran.runs)
    assert ("nothing_of_that_name" in logs, "assert False" in logs) == (True, True)
    (report,) = (report for run in ran.runs for report in run.reports)
    assert "test_b.py::test_it call" in report
    assert "assert False" in report


def test_a_part_costs_what_its_processes_cost(tmp_path: Path) -> None:
    burn = "import time\nwhile time.process_time() < 0.3: pass\n"
    runs = f"import subprocess, sys\n\ndef test_it():\n    subprocess.run([sys.executable, '-c', {burn!r}])\n"
    waits = "import time\n\ndef test_it():\n    time.sleep(0.5)\n"
    parts = _files(tmp_path, a="def test_it():\n    pass\n", b=runs, c=waits)
    ran = Suite(parts, {}, (0,))
    ran.finish()
    assert ran.costs[parts[1]] >= 0.3 > ran.costs[parts[2]]


def test_a_process_that_dies_fails_with_its_part_and_others_go_on(tmp_path: Path) -> None:
    parts = _files(tmp_path, a="import os\n\ndef test_it():\n    os._exit(0)\n", b="def test_it():\n    pass\n")
    ran = Suite(parts, {}, (0, 5))
    ran.finish()
    assert ran.failed() == [parts[0]]
    ran.keep_durations()
    assert list(suite.durations_before()) == [parts[1]]
    alone = Suite(parts, {}, (0,))
    alone.finish()
    assert sorted(alone.failed()) == parts, "what nobody has run has failed"


def test_what_compares_times_runs_when_all_others_have_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    busy = "def test_it(once):\n    pass\n"
    quiet = (
        f"from pathlib import Path\n\ndef test_it():\n    assert len([*Path({str(tmp_path)!r}).glob('ended-*')]) == 2\n"
    )
    parts = _files(tmp_path, a=quiet, b=busy, c=busy, d=busy)
    monkeypatch.setattr(suite, "ALONE", (parts[0],))
    ran = Suite(parts, {}, (0, 5))
    ran.finish()
    assert (ran.failed(), ran.progress()) == ([], "4 of 4 done, 0 failed; ")


def test_a_failure_is_in_the_log_while_the_process_goes_on(tmp_path: Path) -> None:
    shown = f"assert 'assert 7 == 8' in Path({str(tmp_path)!r}, 'test-1.log').read_text()"
    then = f"from pathlib import Path\n\ndef test_it():\n    {shown}\n"
    parts = _files(tmp_path, a="def test_it():\n    assert 7 == 8\n", b=then)
    ran = Suite(parts, {}, (0,))
    ran.finish()
    assert ran.failed() == [parts[0]]


def test_processes_of_a_run_may_write_bytecode(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    assert "PYTHONDONTWRITEBYTECODE" not in suite.environment()
