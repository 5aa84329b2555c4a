"""A command as a person runs it: a process of its own, with a terminal's keys as signals."""

from __future__ import annotations

import asyncio
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from app.settings import Settings
from tests.environment import environment_of

_ROOT = str(Path(__file__).parents[3])
PARLEY = [sys.executable, "-c", "from app.commands import main; main()"]


@dataclass(frozen=True)
class Ended:
    code: int | None
    out: str
    err: str


@dataclass(frozen=True)
class Terminal:
    """`path` is looked through for modules before all others, then this checkout."""

    settings: Settings
    folder: Path
    path: str = ""

    def having(self, **settings: str) -> Terminal:
        """The same with other settings."""
        return replace(self, settings=self.settings.model_copy(update=settings))

    @asynccontextmanager
    async def start(self, *arguments: str) -> AsyncIterator[Process]:
        process = await asyncio.create_subprocess_exec(
            *PARLEY,
            *arguments,
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            cwd=self.folder,
            env=environment_of(self.settings)
            | {"PYTHONUNBUFFERED": "1", "PYTHONPATH": os.pathsep.join(filter(None, (self.path, _ROOT)))},
        )
        try:
            yield process
        finally:
            if process.returncode is None:
                process.kill()
            await process.communicate()

    async def run(self, *arguments: str, typed: str = "") -> Ended:
        async with self.start(*arguments) as process:
            return await ended(process, typed)


async def ended(process: Process, typed: str = "") -> Ended:
    out, err = await asyncio.wait_for(process.communicate(typed.encode()), 180)
    return Ended(process.returncode, out.decode(), err.decode())


async def read_until(stream: asyncio.StreamReader | None, text: str) -> str:
    """What the process writes, up to that text."""
    assert stream is not None
    read = ""
    async with asyncio.timeout(120):
        while text not in read:
            some = await stream.read(1000)
            assert some, f"ended with {read!r}, without {text!r}"
            read += some.decode()
    return read
