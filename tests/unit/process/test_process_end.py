"""Signals that come where exceptions are lost: in an import, a finalizer, the callback of a weak reference."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

START = """
import signal, sys
from app.process.process_end import exit_at_signal
signal.signal(signal.SIGTERM, exit_at_signal)
try:
    {work}
finally:
    import time
    time.sleep(0.2)  # the cleanup takes its time, and is not cut short by the signal that comes again
    print("cleaned up")
print("it went on")
"""


@pytest.mark.parametrize(
    "work",
    [
        "import os; os.kill(os.getpid(), signal.SIGTERM)",
        "import is_ended",
        "import drops_it; import time; time.sleep(30)",
        "import finalizes; finalizes.Ends(); import time; time.sleep(30)",
        "import calls_back; import time; time.sleep(30)",
    ],
)
def test_a_signal_ends_the_process_in_order_also_where_an_import_drops_its_exception(tmp_path: Path, work: str) -> None:
    ends = "os.kill(os.getpid(), signal.SIGTERM)"
    (tmp_path / "is_ended.py").write_text(f"import os, signal\n{ends}\n")
    (tmp_path / "drops_it.py").write_text(f"import os, signal\ntry:\n    {ends}\nexcept BaseException:\n    pass\n")
    (tmp_path / "finalizes.py").write_text(f"import os, signal\nclass Ends:\n    def __del__(self): {ends}\n")
    callback = f"compile('import os, signal\\ndef cb(_): {ends}', '<frozen importlib._bootstrap>', 'exec')"
    leaves = "class Lock: pass\nlock = Lock()\nreference = weakref.ref(lock, cb)\ndel lock"
    (tmp_path / "calls_back.py").write_text(f"import weakref\nexec({callback})\n{leaves}\n")
    root = Path(__file__).parents[3]
    done = subprocess.run(
        [sys.executable, "-c", START.format(work=work)],
        env={"PYTHONPATH": f"{root}:{tmp_path}"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "cleaned up\n", "")
