"""Signals that come while a module is imported, where exceptions are lost."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

START = """
import signal, sys
from app.process_end import exit_at_signal
signal.signal(signal.SIGTERM, exit_at_signal)
try:
    {work}
finally:
    print("cleaned up")
print("it went on")
"""


@pytest.mark.parametrize(
    ("work", "printed"),
    [("import os; os.kill(os.getpid(), signal.SIGTERM)", "cleaned up\n"), ("import drops_it", "")],
)
def test_a_signal_ends_the_process_also_where_an_import_drops_its_exception(
    tmp_path: Path, work: str, printed: str
) -> None:
    (tmp_path / "drops_it.py").write_text(
        "import os, signal\ntry:\n    os.kill(os.getpid(), signal.SIGTERM)\nexcept BaseException:\n    pass\n"
    )
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", START.format(work=work)],
        env={"PYTHONPATH": f"{root}:{tmp_path}"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, printed), done.stderr
