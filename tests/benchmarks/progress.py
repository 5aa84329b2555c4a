"""Progress, one line at a time, on stderr; results go to stdout."""

from __future__ import annotations

import sys
import time

_BEGAN = time.monotonic()


def report(line: str) -> None:
    print(f"[{time.monotonic() - _BEGAN:6.0f} s] {line}", file=sys.stderr, flush=True)
