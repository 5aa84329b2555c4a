"""Scripts: functions and modules that torch runs from beginning to end without the interpreter.

The event loop and the engine are threads of one interpreter. Each operation called from Python releases the GIL and has
to reacquire it, which takes up to a switch interval while the event loop is busy. A script releases it once, and
reacquires it once more for each external tensor that it frees.

TorchScript is deprecated in favour of compilers that need a C++ compiler on the machine. Where it no longer compiles,
the same code runs eagerly.
"""

from __future__ import annotations

import logging
import warnings
from typing import TypeVar, cast

import torch

log = logging.getLogger(__name__)

T = TypeVar("T")


def compiled(code: T) -> T:
    """The script of `code`, or `code` itself if this torch cannot compile it."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the deprecation warning
            return cast(T, torch.jit.script(code))
    except Exception as error:  # noqa: BLE001  whatever it is, without a script it computes the same
        what = getattr(code, "__name__", type(code).__name__)
        log.info("%s runs eagerly: %s", what, (str(error).splitlines() or [type(error).__name__])[0])
        return code
