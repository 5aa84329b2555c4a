"""How processes end, and what signals do before the worker has anything to lose."""

from __future__ import annotations

import atexit
import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from enum import IntEnum
from types import CodeType, FrameType
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
    """A handler that ends the process by `SystemExit`, so that cleanup runs.

    Where exceptions may be lost, the signal comes again. In an import, the compiler drops any but `KeyboardInterrupt`
    where it folds constants. In a finalizer or the callback of a weak reference, Python prints what is raised and drops
    it, so nothing is.
    """
    if isinstance(sys.exception(), SystemExit):
        return  # the cleanup is under way
    codes = list(_codes(frame))
    is_dropped = any(code.co_name == "__del__" or (_of_imports(code) and code.co_name == "cb") for code in codes)
    if is_dropped or any(map(_of_imports, codes)):
        again = threading.Timer(_AGAIN_S, os.kill, (os.getpid(), number))
        again.daemon = True
        again.start()
    if not is_dropped:
        sys.exit(0)


def _codes(frame: FrameType | None) -> Iterator[CodeType]:
    while frame is not None:
        yield frame.f_code
        frame = frame.f_back


def _of_imports(code: CodeType) -> bool:
    return code.co_filename.startswith("<frozen importlib")


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
