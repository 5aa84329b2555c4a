"""Real processes: the owner, vLLM's core below it, a process that computes below that."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from models.vllm.leash import name_of

COMPUTES = "from models.vllm.leash import follow; follow(); print('computes', flush=True); import time; time.sleep(600)"
CORE = f"import subprocess, sys; sys.exit(subprocess.call([sys.executable, '-c', {COMPUTES!r}]))"
OWNER = f"""
import subprocess, sys
from models.vllm.leash import hold
hold()
core = subprocess.Popen([sys.executable, '-c', {CORE!r}], stdout=subprocess.PIPE, text=True)
core.stdout.readline()
print(core.pid, open(f'/proc/{{core.pid}}/task/{{core.pid}}/children').read(), flush=True)
core.wait()
"""
ROOT = Path(__file__).parents[4]


@pytest.fixture
def family() -> Iterator[tuple[subprocess.Popen[str], list[str]]]:
    """The owner, and the names of core and computing process."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    owner = subprocess.Popen([sys.executable, "-c", OWNER], stdout=subprocess.PIPE, text=True, env=environment)
    assert owner.stdout is not None
    names = [name_of(int(pid)) for pid in owner.stdout.readline().split()]
    assert all(names)
    yield owner, names
    for name in filter(None, (*names, name_of(owner.pid))):
        if name_of(pid := int(name.partition(":")[0])) == name:
            os.kill(pid, signal.SIGKILL)
    owner.wait()
    owner.stdout.close()


def wait_gone(names: list[str]) -> None:
    while any(name_of(int(name.partition(":")[0])) == name for name in names):
        time.sleep(0.02)


def test_after_kill_9_of_the_owner_no_process_is_left(family: tuple[subprocess.Popen[str], list[str]]) -> None:
    owner, names = family
    owner.kill()
    wait_gone(names)


def test_after_kill_9_of_the_core_no_process_is_left(family: tuple[subprocess.Popen[str], list[str]]) -> None:
    _, (core, computes) = family
    os.kill(int(core.partition(":")[0]), signal.SIGKILL)
    wait_gone([computes])


def test_a_process_that_has_ended_has_no_name() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert name_of(child.pid) == "", "not even before it is waited for"
    child.wait()
    assert name_of(child.pid) == ""
