"""The sockets that another process has accepted on a port of this machine, opened here to read their options."""

from __future__ import annotations

import ctypes
import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

_PIDFD_GETFD = 438
_ESTABLISHED = "01"


def delays_small_writes(port: int) -> list[bool]:
    """For each accepted connection of this port: whether Nagle's algorithm holds small writes back."""
    with _accepted(port) as sockets:
        return [not one.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) for one in sockets]


@contextmanager
def _accepted(port: int) -> Iterator[list[socket.socket]]:
    # All holders are known before the first copy: a copy makes this process a holder, too.
    holders = [holder for inode in _inodes(port) for holder in _holders(inode)]
    with ExitStack() as opened:
        yield [opened.enter_context(_copy(pid, descriptor)) for pid, descriptor in holders]


def _inodes(port: int) -> set[str]:
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return {row[9] for row in rows if row[1].endswith(f":{port:04X}") and row[3] == _ESTABLISHED}


def _holders(inode: str) -> Iterator[tuple[int, int]]:
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        try:
            if str(link.readlink()) == f"socket:[{inode}]":
                yield int(link.parts[2]), int(link.name)
        except OSError:
            continue  # it was closed meanwhile


def _copy(pid: int, descriptor: int) -> socket.socket:
    process = os.pidfd_open(pid)
    try:
        own = ctypes.CDLL(None, use_errno=True).syscall(_PIDFD_GETFD, process, descriptor, 0)
    finally:
        os.close(process)
    if own < 0:
        raise OSError(ctypes.get_errno(), "the socket of another process cannot be read")
    return socket.socket(fileno=own)
