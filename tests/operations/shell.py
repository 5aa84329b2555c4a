"""The shell that executes a page. All that it starts ends with it."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from asyncio.subprocess import PIPE, STDOUT, Process
from collections.abc import Callable
from contextlib import suppress

from tests.operations.page import ENDED, script
from tests.operations.stage import Stage

_LINES = 12
_WIDTH = 400


class PageError(Exception):
    """A page was not executed to its end: why, and what its shell, its users and its parts have said."""


class Shell:
    """`report` is called with each line that it says."""

    def __init__(self, stage: Stage, report: Callable[[str], None]) -> None:
        self._stage = stage
        self._report = report
        self._process: Process | None = None
        self.said: list[str] = []

    async def start(self, page: str) -> None:
        self._began = time.monotonic()
        program = self._stage.folder / "page.sh"
        program.write_text(script(page))
        environment = dict(self._stage.environment())
        self._process = await asyncio.create_subprocess_exec(
            "bash", program, cwd=self._stage.work, env=environment, stdout=PIPE, stderr=STDOUT, start_new_session=True
        )

    async def until(self, wanted: str) -> None:
        """Read until this line; raises `PageError` if the shell ends before."""
        assert self._process is not None
        assert self._process.stdout is not None
        async for raw in self._process.stdout:
            line = raw.decode(errors="replace").rstrip()
            self.said.append(f"{time.monotonic() - self._began:6.1f} s  {line[:_WIDTH]}")
            self._report(self.said[-1])
            if line == wanted:
                return
            if line.startswith(ENDED):
                break
        raise PageError(f"the shell of the page has ended before {wanted!r}")

    async def end(self) -> None:
        """Also the parts, as they are in its process group."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            await self._process.wait()

    def transcript(self) -> str:
        """What it has written, and the last lines of each part."""
        lines = [*self.said]
        for log in sorted((self._stage.work / "run").glob("*.log")):
            last = log.read_text(errors="replace").splitlines()[-_LINES:]
            lines += [f"-- {log.name}", *(line[:_WIDTH] for line in last)]
        return "\n".join(lines)
