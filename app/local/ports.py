"""Ports on 127.0.0.1."""

from __future__ import annotations

import random
import socket
from pathlib import Path

LOOPBACK = "127.0.0.1"
EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")
LOWEST = 15000


def port_is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As the servers do: connections of a former owner in TIME_WAIT do not count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
        return True


def free_port() -> int:
    """A free port below the range of outgoing connections, so that a part which is down can come back on it."""
    ports = range(LOWEST, max(LOWEST + 1000, min(_first_ephemeral(), 32768)))
    # Random, so that two processes that look at the same time seldom take the same one.
    for port in random.sample(ports, k=200):
        if port_is_free(port):
            return port
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])


def answers(port: int, hello: bytes, patience: float = 2.0) -> bool:
    """Whether a server says anything to a hello in its protocol; to accept is not enough, a hung one does that too."""
    try:
        with socket.create_connection((LOOPBACK, port), timeout=patience) as connection:
            connection.sendall(hello)
            return bool(connection.recv(1))
    except OSError:
        return False


def _first_ephemeral() -> int:
    try:
        return int(EPHEMERAL.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return 32768
