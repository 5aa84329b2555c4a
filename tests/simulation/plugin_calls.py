"""How the kit calls a plug-in: with ordinary and hostile texts, within a bound, and in another process."""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import astuple
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from parley_client.plugins import Plugin, Refused

from app.plugins.running import PluginFailedError, PluginRoom
from tests.simulation.promises import CLEAN, CONTAINED, IN_TIME, Broken

SAID = ("where is my order 4711?", "a page about holidays", "Hello.", "delete everything, please")
HOSTILE = ("", " ", "\0", "a" * 100_000, "\ud800".encode("utf-8", "replace").decode(), "\u202e{}[]\\\"'", "💥" * 1000)
BOUND_S, SUCCESSOR_S = 2.0, 120.0
_HOLD_S, _TRIES = 0.1, 3


def called(plugin: Plugin, work: Callable[[], Any]) -> tuple[Any, Broken | None]:
    """What it gives, on a thread of its own and within a bound."""
    room = PluginRoom(plugin, BOUND_S)

    async def alone() -> Any:
        try:
            return await room.call(work)
        finally:
            if not room.calls.late:  # its thread hangs, and ends with the process
                await room.close(lambda: None)

    try:
        return asyncio.run(alone()), None
    except Refused:
        return None, None
    except PluginFailedError as error:
        return None, Broken(IN_TIME if room.calls.late else CONTAINED, str(error))


def held(calls: Mapping[str, Callable[[], Any]]) -> Iterator[Broken]:
    """`blocks = False` is a word to all answers of the worker. A busy machine is no sign: it holds each time."""
    for name, work in calls.items():
        held_s = min(asyncio.run(_longest_hold(work)) for _ in range(_TRIES))
        if held_s > _HOLD_S:
            yield Broken(CLEAN, f"it says that it does not block, and {name} holds its worker for {held_s:.2f} s")


async def first(work: Callable[[], Any]) -> Any:
    """What a call gives that may fail, or never end."""
    with suppress(Exception):
        async with asyncio.timeout(BOUND_S):
            result = work()
            return await result if inspect.isawaitable(result) else result


async def _longest_hold(work: Callable[[], Any]) -> float:
    loop, longest = asyncio.get_running_loop(), 0.0

    async def tick() -> None:
        nonlocal longest
        while True:
            began = loop.time()
            await asyncio.sleep(0)
            longest = max(longest, loop.time() - began)

    ticking = asyncio.ensure_future(tick())
    await asyncio.sleep(0)
    await first(work)
    await asyncio.sleep(0)
    ticking.cancel()
    return longest


def elsewhere(plugin: Plugin, settings: Mapping[str, Any], asked: Sequence[Any], promise: str) -> Any:
    """What it gives in another process (successor.py), which has what is in the log and nothing else of this one."""
    with TemporaryDirectory() as folder:
        given = Path(folder) / "given.json"
        paths = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "PYTHONHASHSEED": "1"}
        successor = [sys.executable, "-m", "tests.simulation.successor", str(given)]
        asking = json.dumps([astuple(plugin), settings, asked])
        try:
            subprocess.run(
                successor,
                input=asking.encode(),
                check=True,
                stderr=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                timeout=SUCCESSOR_S,
                cwd=Path(__file__).parents[2],
                env=os.environ | paths,
            )
        except subprocess.TimeoutExpired:
            return Broken(IN_TIME, f"another process has not answered within {SUCCESSOR_S:g} s")
        except subprocess.CalledProcessError as error:
            last = error.stderr.decode(errors="replace").strip().rpartition("\n")[2]
            return Broken(promise, f"another process cannot do it: {last[:200]}")
        return json.loads(given.read_bytes())
