"""A service that mode starts in a thread of its own, here in the event loop that starts it.

Faust runs its consumer in a thread, so each poll crosses over to that thread's loop and back: two wake-ups, two more
turns at the interpreter, and a queue whose worker starts tasks to wait for it. A record has to get into the
application's loop anyway. Without the crossing a request costs a tenth less processor time
(tests/benchmarks/README.md).

Heartbeats now stop when the application's loop is blocked: with a session of 8 s, blocks of 2 and 5 s are survived, and
one of 10 s costs the partitions. A worker whose loop is blocked for a whole session delivers nothing either, and should
lose them. app/telemetry/loop_lag.py logs each block of over a second, and the code that causes it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from mode.threads import QueueServiceThread
from mode.utils.futures import maybe_async


class _Task:
    """Takes the place of mode's `WorkerThread`."""

    def __init__(self, service: SameLoop) -> None:
        self._service = service

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._service.serve())

    def stop(self) -> None:
        """The service has shut down when mode calls this; a thread would be joined here."""


class SameLoop(QueueServiceThread):
    """Mixed into a subclass of `QueueServiceThread`, which is then created with `thread_loop` = `loop`."""

    abstract = True
    Worker = _Task

    async def serve(self) -> None:
        """Run until the service is stopped. `start` raises what goes wrong at first, `crash` reports the rest."""
        try:
            await self._serve()
        except Exception:  # noqa: BLE001 - reported by `_serve`
            self.set_shutdown()

    async def call_thread(self, fun: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return await maybe_async(fun(*args, **kwargs))

    async def _gather_remaining_tasks(self) -> None:
        """Disabled: mode cancels all tasks of the service's loop, which would be those of the application."""
