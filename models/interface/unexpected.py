"""Name an exception that no code expects, for the log: its text may quote a prompt, so type and line have to do."""

from __future__ import annotations

from pathlib import Path
from traceback import walk_tb

_ROOT = Path(__file__).parents[2]
_PACKAGES = ("agents", "app", "models", "tables", "tests")


def contained(error: BaseException) -> Exception:
    """The error as one of the work in hand; raises it again if it is meant for the whole thread. A panic of an
    extension in Rust is no `Exception`, and still it is about what it was called with.
    """
    if isinstance(error, Exception):
        return error
    if type(error).__name__ == "PanicException":
        return RuntimeError(type_and_line(error))
    raise error


def type_and_line(error: BaseException) -> str:
    """For example `KeyError in models/rendering.py:42 (rendered)`: the last line of Parley's own that it passed, or the
    line that raised it if there is none.
    """
    frames = [
        (Path(frame.f_code.co_filename), line, frame.f_code.co_name) for frame, line in walk_tb(error.__traceback__)
    ]
    if not frames:
        return type(error).__name__
    path, line, function = next((frame for frame in reversed(frames) if _is_ours(frame[0])), frames[-1])
    name = path.relative_to(_ROOT) if _is_ours(path) else path.name
    return f"{type(error).__name__} in {name}:{line} ({function})"


def _is_ours(path: Path) -> bool:
    return path.is_relative_to(_ROOT) and path.relative_to(_ROOT).parts[0] in _PACKAGES
