"""One plug-in at work: on a thread of its own, unless it never blocks, within a bound, and with its errors contained.

A plug-in that blocks holds its own thread. Each call has `BOUND_S`; what waits longer is given up, so a plug-in that
hangs costs each of its requests these seconds and their answer, and nobody else anything. What it raises, `SystemExit`
included, is the error of that call.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from traceback import walk_tb
from typing import Any, TypeVar

from parley_client.plugins import BOUND_S, Plugin, Refused

from models.interface.unexpected import type_and_line

log = logging.getLogger(__name__)

T = TypeVar("T")


class PluginFailedError(Exception):
    """A call of a plug-in has no result; one line for the sender, without the plug-in's own words."""


@dataclass(slots=True)
class Calls:
    """Those that are over, by how; and the seconds that they took."""

    done: int = 0
    refused: int = 0
    failed: int = 0
    late: int = 0
    seconds: float = 0.0


class PluginRoom:
    """Where one plug-in runs: on a thread of its own, which begins with the first call, or, if it never `blocks`, in
    the event loop of its caller, so that a call costs no change of threads. `threaded`: a simulated world has one
    thread.
    """

    threaded = True

    def __init__(self, plugin: Plugin, bound_s: float = BOUND_S, *, blocks: bool = True) -> None:
        self.plugin = plugin
        self.blocks = blocks
        self.calls = Calls()
        self._bound_s = bound_s
        self._loop: asyncio.AbstractEventLoop | None = None

    async def call(self, work: Callable[[], Any]) -> Any:
        """What it makes of a call. Raises `PluginFailedError`, and `Refused` if it says so."""
        began = asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout(self._bound_s):
                result, error = await self._contained(work)
        except TimeoutError:
            self.calls.late += 1
            log.error("the plug-in %s has not answered within %.0f s", self.plugin, self._bound_s)
            why = f"did not answer within {self._bound_s:.0f} s"
            raise PluginFailedError(f"the plug-in {self.plugin.name} {why}") from None
        finally:
            self.calls.seconds += asyncio.get_running_loop().time() - began
        if error is None:
            self.calls.done += 1
            return result
        if isinstance(error, Refused):
            self.calls.refused += 1
            raise error
        self.fail(error)
        why = f"failed on this request ({type(error).__name__})"
        raise PluginFailedError(f"the plug-in {self.plugin.name} {why}") from error

    def fail(self, error: BaseException) -> None:
        """Count and log what it has raised."""
        self.calls.failed += 1
        log.error("the plug-in %s failed: %s", self.plugin, _type_and_own_line(self.plugin, error))

    def begin(self, work: Callable[[], Any]) -> None:
        """A call that nobody waits for, within the same bound. Its errors are logged."""

        async def bounded() -> None:
            with suppress(PluginFailedError, Refused):
                await self.call(work)

        task = asyncio.get_running_loop().create_task(bounded(), name=f"plug-in {self.plugin.name}")
        _begun.add(task)
        task.add_done_callback(_begun.discard)

    async def close(self, work: Callable[[], Any]) -> None:
        """Let it close, and end its thread; a thread that hangs ends with the process."""
        with suppress(PluginFailedError, Refused):
            await self.call(work)
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._loop = None

    async def _contained(self, work: Callable[[], Any]) -> tuple[Any, BaseException | None]:
        if not (self.threaded and self.blocks):
            return await _outcome(work)
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            name = f"plug-in {self.plugin.name}"
            threading.Thread(target=_run, args=(self._loop,), name=name, daemon=True).start()
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(_outcome(work), self._loop))


class BriefCalls:
    """Calls that the event loop waits for: on a thread of their own, within `brief_s`. A thread that hangs is left, and
    after `_MOST_HUNG` of them nothing is called any more.
    """

    brief_s = 1.0

    def __init__(self, plugin: Plugin) -> None:
        self._plugin = plugin
        self._thread: ThreadPoolExecutor | None = None
        self._hung = 0

    def call(self, work: Callable[[], T]) -> T:
        """What it makes of a call; raises what it raises, and `PluginFailedError` if it is late."""
        if not PluginRoom.threaded:
            return work()
        if self._hung >= _MOST_HUNG:
            raise PluginFailedError(f"the plug-in {self._plugin.name} hangs; restart its worker")
        self._thread = self._thread or ThreadPoolExecutor(1, f"plug-in {self._plugin.name}")
        try:
            return self._thread.submit(work).result(self.brief_s)
        except TimeoutError:
            self._hung += 1
            self._thread.shutdown(wait=False, cancel_futures=True)
            self._thread = None
            log.error("the plug-in %s has not answered within %g s", self._plugin, self.brief_s)
            raise PluginFailedError(f"the plug-in {self._plugin.name} did not answer in time") from None


def _type_and_own_line(plugin: Plugin, error: BaseException) -> str:
    """The last line of the plug-in's package that the error has passed: what its author looks for."""
    package = plugin.place.partition(":")[0].partition(".")[0]
    own = [
        f"{Path(frame.f_code.co_filename).name}:{line} ({frame.f_code.co_name})"
        for frame, line in walk_tb(error.__traceback__)
        if str(frame.f_globals.get("__name__")).partition(".")[0] == package
    ]
    return f"{type(error).__name__} in {own[-1]}" if own else type_and_line(error)


_MOST_HUNG = 8
_begun: set[asyncio.Task[None]] = set()


async def _outcome(work: Callable[[], Any]) -> tuple[Any, BaseException | None]:
    """Nothing that it raises leaves it: what ends a thread or a process would end others, too."""
    try:
        result = work()
        return (await result if inspect.isawaitable(result) else result), None
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        return None, error
    except BaseException as error:  # noqa: BLE001 - it is about this call
        return None, error


def _run(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    loop.run_forever()
    loop.run_until_complete(_cancel_others())
    loop.close()


async def _cancel_others() -> None:
    """What has been given up, or comes while the plug-in closes; a task that does not end holds its own thread."""
    await asyncio.sleep(0)
    if others := asyncio.all_tasks() - {asyncio.current_task()}:
        for other in others:
            other.cancel()
        await asyncio.wait(others)
