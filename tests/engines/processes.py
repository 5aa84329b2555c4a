"""The processes below one, as Linux names them."""

from __future__ import annotations

import os
from dataclasses import dataclass

import psutil


@dataclass(frozen=True)
class Process:
    name: str
    handle: psutil.Process

    @property
    def lives(self) -> bool:
        return self.handle.is_running() and self.handle.status() != psutil.STATUS_ZOMBIE

    def kill(self) -> None:
        self.handle.kill()


def children_of(pid: int | None = None) -> list[Process]:
    """All processes below `pid`, which is this one if none is given; `name` is the title, or the command line."""
    below = psutil.Process(pid or os.getpid()).children(recursive=True)
    return [Process(" ".join(one.cmdline()) or one.name(), one) for one in below]
