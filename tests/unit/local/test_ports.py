from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Iterator

import pytest

from app.local import ports
from app.local.ports import LOOPBACK, free_port

DRAWS = (
    "import random, sys; from app.local import ports; draw = list(map(int, sys.argv[1:]));"
    "random.sample = lambda population, k: draw; print(ports.free_port(), flush=True); sys.stdin.read()"
)


@pytest.fixture
def one() -> int:
    return free_port()


@pytest.fixture
def other_process(one: int) -> Iterator[subprocess.Popen[str]]:
    """It draws the port of this process, then the next two."""
    draw = [str(port) for port in (one, one + 1, one + 2)]
    with subprocess.Popen(
        [sys.executable, "-c", DRAWS, *draw], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield process
        process.kill()


def test_a_process_is_never_given_a_port_twice(one: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(random, "sample", lambda population, k: [one, one, *population])
    assert free_port() != one


def test_two_processes_are_never_given_the_same_port(one: int, other_process: subprocess.Popen[str]) -> None:
    assert other_process.stdout is not None
    assert int(other_process.stdout.readline()) in (one + 1, one + 2)


def test_a_port_is_given_again_when_its_process_is_gone(
    other_process: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert other_process.stdout is not None
    port = int(other_process.stdout.readline())
    monkeypatch.setattr(random, "sample", lambda population, k: [port])
    with pytest.raises(OSError, match=rf"no port from \d+ to \d+ is free on {LOOPBACK}"):
        free_port()
    other_process.kill()
    other_process.wait()
    assert free_port() == port
    ports._held.discard(port)
