"""Scripts: functions and modules that torch runs from beginning to end without the interpreter.

The event loop and the engine are threads of one interpreter. Each operation that Python calls gives it away and has to
get it back, which takes up to a switch interval while the loop is busy. A script gives it away once, and once more for
each tensor from outside that it lets go of.

TorchScript is deprecated in favour of compilers that need one on the machine. Where it does not compile any more, the
same code runs eagerly.
"""

from __future__ import annotations

import logging
import warnings
from typing import TypeVar, cast

import torch

log = logging.getLogger(__name__)

T = TypeVar("T")


def compiled(code: T) -> T:
    """The script of `code`, or itself where this torch does not make one."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that it is deprecated
            return cast(T, torch.jit.script(code))
    except Exception as error:  # noqa: BLE001  whatever it is, without a script it computes the same
        what = getattr(code, "__name__", type(code).__name__)
        log.info("%s stays eager: %s", what, (str(error).splitlines() or [type(error).__name__])[0])
        return code
