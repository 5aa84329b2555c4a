"""The end of a worker's process, and what signals do before the worker has anything to lose."""

from __future__ import annotations

import atexit
import logging
import os
import signal
import sys
from contextlib import suppress
from types import FrameType
from typing import NoReturn


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


def exit_at_signal(_number: int, frame: FrameType | None) -> NoReturn:
    """A handler that ends the process by `SystemExit`, so that cleanup runs; at once while a module is imported, since
    the compiler drops any exception but `KeyboardInterrupt` where it folds constants.
    """
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            end_process(0)
        frame = frame.f_back
    sys.exit(0)


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
