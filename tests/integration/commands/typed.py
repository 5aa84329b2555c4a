"""A command at a terminal of its own, typed into and read as a person does."""

from __future__ import annotations

import asyncio
import os
import pty
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from app.settings import Settings
from tests.environment import environment_of

# The terminal is made the process's own, so that its Ctrl-C is a signal.
_PARLEY = "import fcntl, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); from app.commands import main; main()"


@dataclass
class Typed:
    process: subprocess.Popen[bytes]
    terminal: int
    rest: str = ""

    def type(self, text: str) -> None:
        os.write(self.terminal, text.encode())

    async def until(self, text: str) -> str:
        """What is shown up to that text; what follows it is for the next time."""
        shown = self.rest
        async with asyncio.timeout(120):
            while text not in shown:
                try:
                    shown += os.read(self.terminal, 65536).decode()
                except BlockingIOError:
                    await asyncio.sleep(0.02)
                except OSError:
                    raise AssertionError(f"it ended with {shown!r}, without {text!r}") from None
        before, found, self.rest = shown.partition(text)
        return before + found

    async def ended(self) -> int:
        return await asyncio.to_thread(self.process.wait, 180)


@asynccontextmanager
async def typed(settings: Settings, folder: Path, *arguments: str) -> AsyncIterator[Typed]:
    own, its = pty.openpty()
    os.set_blocking(own, False)
    process = subprocess.Popen(
        [sys.executable, "-c", _PARLEY, *arguments],
        stdin=its,
        stdout=its,
        stderr=its,
        start_new_session=True,
        cwd=folder,
        env=environment_of(settings) | {"XDG_STATE_HOME": str(folder), "TERM": "dumb"},
    )
    os.close(its)
    try:
        yield Typed(process, own)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        os.close(own)
