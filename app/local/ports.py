"""Ports on 127.0.0.1, each given to one caller of this machine.

A port is free until the server that it is for has bound it, seconds later. Until then a process holds it by a lock on
one byte of a file (the port's number is the byte's), so that no other process is given it; the lock ends with the
process. Drawing alone is not enough: of two draws from 17,000 ports one in 17,000 is the same, and a test run draws
thousands.
"""

from __future__ import annotations

import fcntl
import os
import random
import socket
import tempfile
from functools import cache
from pathlib import Path

LOOPBACK = "127.0.0.1"
EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")
LOWEST = 15000
_held: set[int] = set()
"""By this process, to which its own locks say nothing."""


def port_is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # Like the servers: connections of a former process in TIME_WAIT do not count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
        return True


def free_port() -> int:
    """A free port below the ephemeral range, so that a stopped server can return to it. It is held until this process
    ends.

    Raises OSError if there is none.
    """
    ports = range(LOWEST, max(LOWEST + 1000, min(_first_ephemeral(), 32768)))
    for port in random.sample(ports, k=len(ports)):
        if port not in _held and port_is_free(port) and _hold(port):
            _held.add(port)
            return port
    raise OSError(f"no port from {ports.start} to {ports.stop - 1} is free on {LOOPBACK}")


def _hold(port: int) -> bool:
    try:
        fcntl.lockf(_lock_file(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
    except OSError:
        return False
    return True


@cache
def _lock_file() -> int:
    """Open until the process ends: closing it would release every lock."""
    path = Path(tempfile.gettempdir()) / f"parley-ports-{os.getuid()}"
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)


def _first_ephemeral() -> int:
    try:
        return int(EPHEMERAL.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return 32768
