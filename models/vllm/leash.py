"""No process of vLLM outlives the one that has started it, however that one ends.

vLLM ends its processes when it is stopped. After `kill -9` of the owner, or of vLLM's core, some of them stay. So a
thread in each process that computes looks whether its owner and its parent still live, and ends it with its parent
otherwise. A process is named by its id and the time of its start, since ids are used again.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from contextlib import suppress
from pathlib import Path

OWNER = "LEASH_OWNER"
PERIOD_S = 0.5
_STARTED = 19  # the field of the start's time in /proc/<pid>/stat, behind the name


def name_of(pid: int) -> str:
    """`pid:ticks` of a process; empty if it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] == "Z" else f"{pid}:{fields[_STARTED]}"


def hold() -> None:
    """The processes that this one starts from now on end with it, if they call `follow`."""
    os.environ[OWNER] = name_of(os.getpid())


def follow() -> None:
    """End this process soon after its owner or its parent has ended."""
    owner = os.environ.get(OWNER, "")
    parent = name_of(os.getppid())
    if owner:
        threading.Thread(target=_follow, args=(owner, parent), name="leash", daemon=True).start()


def _follow(owner: str, parent: str) -> None:
    while _lives(owner) and _lives(parent):
        time.sleep(PERIOD_S)
    if _lives(parent) and parent != owner:  # vLLM's core, which has started this process
        with suppress(ProcessLookupError):
            os.kill(int(parent.partition(":")[0]), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


def _lives(name: str) -> bool:
    return name != "" and name_of(int(name.partition(":")[0])) == name
