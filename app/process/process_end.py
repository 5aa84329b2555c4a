"""How processes end, and what signals do before the worker has anything to lose."""

from __future__ import annotations

import atexit
import logging
import os
import signal
import sys
import threading
from contextlib import suppress
from enum import IntEnum
from types import FrameType
from typing import NoReturn

_AGAIN_S = 0.05


class ExitCode(IntEnum):
    """What every process of Parley ends with. A supervisor starts it again after `FAILED`, which may pass by itself;
    `WRONG_USE` stays until somebody changes what its one line names: an option, a setting, a file, a port.
    """

    DONE = 0
    FAILED = 1
    WRONG_USE = 2


def end_process(code: int) -> NoReturn:
    """End the process after an orderly stop, without finalizing the interpreter.

    At finalization, native libraries print warnings about objects that others still hold (nanobind, about triton's
    types). They mean nothing and alarm readers of the log.
    """
    atexit._run_exitfuncs()  # noqa: SLF001 - all that the ordinary end would do, but the end of the interpreter
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, RuntimeError):  # its reader is gone, or a signal has interrupted a write
            stream.flush()
    os._exit(code)


def exit_at_signal(number: int, frame: FrameType | None) -> None:
    """A handler that ends the process by `SystemExit`, so that cleanup runs. While a module is imported, the signal
    comes again: the compiler drops any exception but `KeyboardInterrupt` where it folds constants.
    """
    if isinstance(sys.exception(), SystemExit):
        return  # the cleanup is under way
    if _imports(frame):
        again = threading.Timer(_AGAIN_S, os.kill, (os.getpid(), number))
        again.daemon = True
        again.start()
    sys.exit(0)


def _imports(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


def end_at_signals() -> None:
    """From now on SIGTERM and Ctrl-C end the process at once, with exit code 0.

    For what imports and loads for many seconds and has nothing to lose yet, as the start of a worker. What comes later
    replaces the handlers.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _end)


def _end(number: int, _frame: object) -> None:
    for one in (signal.SIGINT, signal.SIGTERM):
        signal.signal(one, lambda *_: os._exit(0))
    # Not `print`: the signal may have interrupted one.
    os.write(2, f"parley: stopped by {signal.Signals(number).name}\n".encode())
    end_process(0)
