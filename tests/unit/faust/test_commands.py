"""`faust -A app COMMAND`, as a user types it; and a worker whose application others have registered on."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from app.local.ports import free_port
from tables.records import Table

ROOT = Path(__file__).parents[3]
FAUST = Path(sys.executable).with_name("faust")


def faust(folder: Path, *arguments: str, app: str = "app") -> subprocess.CompletedProcess[str]:
    """With no broker at its address."""
    environment = os.environ | {
        "PARLEY_DATA_DIR": str(folder / "data"),
        "PARLEY_BROKER": f"kafka://127.0.0.1:{free_port()}",
        "PARLEY_ENGINE": "paced",
        "PYTHONPATH": os.pathsep.join((str(ROOT), str(folder))),
    }
    command = [str(FAUST), "-A", app, *arguments]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=180, check=False
    )


def test_agents_are_told_with_what_they_read(tmp_path: Path) -> None:
    told = faust(tmp_path, "agents").stdout
    for name, help_ in (("requests", "What users ask"), ("controls", "Cancels"), ("turns", "for the index")):
        (line,) = (line for line in told.splitlines() if f"@{name}" in line)
        assert help_ in line


def test_tables_are_parleys_own(tmp_path: Path) -> None:
    told = faust(tmp_path, "tables").stdout
    assert [table.value for table in Table if f"| {table.value} " not in told] == []
    assert "not a faust.Table" in told


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["reset"], "Parley's tables are not Faust's, so nothing was reset; stop the worker and delete "),
        (["send", "@requests", "{}"], "whose record is it? Name the user: `faust -A app send @requests … --key nina`"),
        (["send", "@answers", "{}"], "there is no agent @answers; there are @requests, @controls, @turns"),
        ([], "Missing command. (see `faust --help`)"),
        (["model", "Turn"], "No model 'Turn'."),
        (["completion"], "Missing required dependency"),
    ],
    ids=lambda value: " ".join(value[:2]) if isinstance(value, list) else "",
)
def test_what_makes_no_sense_is_said_in_one_line(tmp_path: Path, arguments: list[str], error: str) -> None:
    ran = faust(tmp_path, *arguments)
    assert ran.returncode == 2
    (line,) = ran.stderr.splitlines()
    assert line.startswith(f"Error: {error}")


@pytest.mark.parametrize(
    ("program", "what"),
    [
        ("@app.agent(app.topic('mine'))\nasync def read(stream): ...\n", "the agent mine.read"),
        ("counts = app.Table('counts')\n", "the table counts"),
    ],
    ids=["agent", "table"],
)
def test_what_others_register_on_the_app_stops_the_start(tmp_path: Path, program: str, what: str) -> None:
    (tmp_path / "mine.py").write_text(f"from app import app\n\n{program}")
    ran = faust(tmp_path, "worker", "--without-web", app="mine")
    assert ran.returncode == 2
    (line,) = (line for line in ran.stderr.splitlines() if line.startswith("parley: "))
    assert line == (
        f"parley: Parley's app does not run {what}: it commits no offsets but those of answers, so each start would "
        "repeat your records; register it on a faust.App of your own, in a process beside (docs/own-programs.md)"
    )
