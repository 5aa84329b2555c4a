"""What was measured once is known at the next start, of the same machine alone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from models.machine import measurements


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "parley"


def read_by_another_process(*, variables: dict[str, str]) -> str:
    code = "from models.machine import measurements; print(measurements.read('speed'))"
    root = Path(__file__).parents[4]
    return subprocess.check_output([sys.executable, "-c", code], text=True, cwd=root, env=variables).strip()


def test_another_start_of_the_same_machine_reads_what_was_kept(folder: Path) -> None:
    assert measurements.read("speed") == {}
    measurements.keep("speed", {"a": [1, 2]})
    measurements.keep("speed", {"b": [3]})
    measurements.keep("size", {"a": 4})
    own = {"XDG_CACHE_HOME": str(folder.parent)}
    assert read_by_another_process(variables=own) == "{'a': [1, 2], 'b': [3]}"
    assert read_by_another_process(variables=own | {"ONEDNN_MAX_CPU_ISA": "AVX2"}) == "{}", "other code computes"


def test_a_file_that_is_torn_is_as_none(folder: Path) -> None:
    measurements.keep("speed", {"a": [1]})
    (file,) = folder.iterdir()
    for text in ('{"speed": {"a"', "[]", '{"speed": 7}'):
        file.write_text(text)
        assert measurements.read("speed") == {}
    measurements.keep("speed", {"a": [2]})
    assert measurements.read("speed") == {"a": [2]}


def test_a_folder_that_cannot_be_written_costs_the_time_alone(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="models.machine.measurements")
    folder.write_text("a file stands here")
    measurements.keep("speed", {"a": [1]})
    assert "measured anew at each start" in caplog.text
    assert measurements.read("speed") == {}
