"""What the processes of a run share is made once; npm in one folder twice at a time fails with ENOTEMPTY."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration import npm

RUN = "import sys; from pathlib import Path; from tests.integration.npm import installed; installed(Path(sys.argv[1]))"
NPM = """#!/bin/sh
mkdir node_modules || exit 217
sleep 1
echo ci >> runs
touch node_modules/.package-lock.json
"""


def test_four_processes_install_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, program = tmp_path / "folder", tmp_path / "npm"
    folder.mkdir()
    (folder / "package-lock.json").write_text("{}")
    program.write_text(NPM)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    processes = [subprocess.Popen([sys.executable, "-c", RUN, str(folder)]) for _ in range(4)]
    assert [process.wait(60) for process in processes] == [0, 0, 0, 0]
    assert (folder / "runs").read_text() == "ci\n"
    assert npm.installed(folder) == folder / "node_modules"
