"""The end of a worker's process."""

from __future__ import annotations

import atexit
import logging
import os
import sys
from contextlib import suppress
from typing import NoReturn


def end_process(code: int) -> NoReturn:
    """End the process after an orderly stop, without finalizing the interpreter.

    At finalization, native libraries print warnings about objects that others still hold (nanobind, about triton's
    types). They mean nothing and alarm readers of the log.
    """
    atexit._run_exitfuncs()  # noqa: SLF001 - all that the ordinary end would do, but the end of the interpreter
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # the reader of stdout is gone
            stream.flush()
    os._exit(code)
