"""PID 1 of a container: `parley-init PROGRAM ARGUMENT...`.

It starts the program, hands signals on to it, reaps what others leave behind, and ends with the program's exit code. If
the program is killed, a container whose PID 1 it was would end with it, and the watcher (app/watch) with the container;
so this process waits a moment for what the program has started. Common inits, as tini, do not.

The program has a process group of its own, in the foreground of a terminal: Ctrl-C reaches it once.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from contextlib import suppress
from types import FrameType

from app.process.process_end import ExitCode

MOST_S = 15.0
"""A watcher ends within the default session and some seconds."""
_SUBREAPER = 36
"""PR_SET_CHILD_SUBREAPER: orphans come here also where this is not PID 1, as with a shared process namespace."""
_IGNORED = (signal.SIGPIPE, signal.SIGXFSZ)
"""By Python; its programs would, too."""
_HANDED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)


def run(command: list[str]) -> int:
    """The exit code of this process."""
    early: list[int] = []
    for number in _HANDED_ON:
        signal.signal(number, lambda number, _frame: early.append(number))
    ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)
    try:
        program = os.posix_spawnp(command[0], command, os.environ, setpgroup=0, setsigdef=_IGNORED)
    except OSError as error:
        sys.stderr.write(f"parley: {command[0]}: {error.strerror}\n")
        return 127

    def hand_on(number: int, _frame: FrameType | None) -> None:
        with suppress(ProcessLookupError):
            os.kill(program, number)

    for number in _HANDED_ON:
        signal.signal(number, hand_on)
    for one in early:
        hand_on(one, None)
    _to_foreground(program)
    status = _reap_until(program)
    for number in _HANDED_ON:
        signal.signal(number, signal.SIG_IGN)
    _reap_rest(time.monotonic() + MOST_S)
    return os.waitstatus_to_exitcode(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)


def _to_foreground(program: int) -> None:
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)  # for a process in the background that does this
    with suppress(OSError):
        os.tcsetpgrp(0, program)


def _reap_until(program: int) -> int:
    while True:
        process, status = os.wait()
        if process == program:
            return status


def _reap_rest(until: float) -> None:
    with suppress(ChildProcessError):
        while time.monotonic() < until:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                time.sleep(0.01)


def main() -> int:
    if not sys.argv[1:]:
        sys.stderr.write("parley: a program to run is missing\n")
        return ExitCode.WRONG_USE
    return run(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
