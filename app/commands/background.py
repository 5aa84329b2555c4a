"""An event loop beside the terminal: the main thread can wait for a key while records arrive."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, wait
from types import TracebackType
from typing import Any, Self, TypeVar

T = TypeVar("T")

_TICK_S = 0.1


class BackgroundLoop:
    """Runs coroutines in a second thread. Ctrl-C always reaches the main thread, which waits for them."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="background loop", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.wait(_cancel_others())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def wait(
        self,
        work: Coroutine[Any, Any, T],
        *,
        on_interrupt: Callable[[], None] | None = None,
        meanwhile: Callable[[], None] | None = None,
    ) -> T:
        """The result of `work`. The first Ctrl-C calls `on_interrupt`, if given; the next one cancels the work.

        `meanwhile` is called several times per second.
        """
        future: Future[T] = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            while meanwhile is not None and not wait({future}, _TICK_S).done:
                meanwhile()
            return future.result()
        except KeyboardInterrupt:
            if on_interrupt is None:
                future.cancel()
                raise
        try:
            on_interrupt()
            return future.result()
        except KeyboardInterrupt:
            future.cancel()
            raise

    def _run(self) -> None:
        # The system may deliver a signal to any thread; only the main thread handles it, possibly during a read.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
        self._loop.run_forever()

    def begin(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Start `work` without waiting; whoever drops the future lets it report its failures itself."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)


async def _cancel_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
