"""The engine's thread on a core of its own, everything else of the process on the other.

`BENCH_ENGINE_CORE` and `BENCH_OTHER_CORE` say which; without them nothing is pinned. In either case the engine's
thread is named, so that its processor time can be measured apart from the rest.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path

NAME = "engine"


def name_engine() -> None:
    """Call before the engine is made, on the main thread."""
    from models.engine.worker import EngineThread  # noqa: PLC0415 - imports torch

    other, core = os.environ.get("BENCH_OTHER_CORE"), os.environ.get("BENCH_ENGINE_CORE")
    if other is not None:
        os.sched_setaffinity(0, {int(other)})  # every thread made from here on has it too
    run = EngineThread.run

    def pinned(self: EngineThread) -> None:
        Path(f"/proc/self/task/{threading.get_native_id()}/comm").write_text(NAME)
        if core is not None:
            os.sched_setaffinity(0, {int(core)})
        run(self)

    EngineThread.run = pinned  # type: ignore[method-assign]
