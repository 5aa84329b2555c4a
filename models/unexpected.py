"""Name an exception that nobody has foreseen, for the log: its text may quote a prompt, so type and line have to do."""

from __future__ import annotations

from pathlib import Path
from traceback import walk_tb


def contained(error: BaseException) -> Exception:
    """The error as one of the work in hand; raises it again if it is meant for the whole thread. A panic of an
    extension in Rust is no `Exception`, and still it is about what it was called with.
    """
    if isinstance(error, Exception):
        return error
    if type(error).__name__ == "PanicException":
        return RuntimeError(type_and_place(error))
    raise error


def type_and_place(error: BaseException) -> str:
    """For example `KeyError at rendering.py:42`, the line that raised it."""
    frames = list(walk_tb(error.__traceback__))
    if not frames:
        return type(error).__name__
    frame, line = frames[-1]
    return f"{type(error).__name__} at {Path(frame.f_code.co_filename).name}:{line}"
