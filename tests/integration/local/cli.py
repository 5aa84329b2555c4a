"""`parley local` as a person runs it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psutil

COMMAND = [str(Path(sys.executable).with_name("parley")), "local"]


def parley_local(where: Path, *arguments: str, timeout: float = 200) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments], cwd=where, capture_output=True, text=True, timeout=timeout, check=False
    )


def begin_parley_local(where: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*COMMAND, *arguments], cwd=where, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def processes_below(folder: Path) -> list[psutil.Process]:
    """Every process whose command line names the folder."""
    found = []
    for process in psutil.process_iter():
        try:
            if any(str(folder) in argument for argument in process.cmdline()):
                found.append(process)
        except psutil.Error:
            continue
    return found
