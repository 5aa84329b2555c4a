"""Execute one page while users ask, and judge what became of their answers."""

from __future__ import annotations

import asyncio
import os
import statistics
import time
from asyncio.subprocess import PIPE, STDOUT
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tests.faults.verdict import Verdict
from tests.operations.callers import Callers
from tests.operations.page import script
from tests.operations.procedures import Procedure, verdict_after
from tests.operations.stage import Stage

PAGE_S = 480.0
_LOST = "lost"
HEAD = """\
| page | seconds | answers | lost | doubled, torn or changed | failed | asked again | longest pause (p50, max s) |
|---|---|---|---|---|---|---|---|"""


class PageError(Exception):
    """A block of the page has failed; its last lines."""


@dataclass(frozen=True)
class Outcome:
    page: str
    seconds: float
    callers: Callers
    verdict: Verdict
    may: frozenset[str]
    may_fail: bool

    @property
    def wrong(self) -> dict[str, int]:
        return {name: len(keys) for name, keys in self.verdict.faults.items() if name not in self.may}

    @property
    def is_right(self) -> bool:
        """Whether every request has its turn or its error, and nothing else is wrong than the page says."""
        verdict, failed = self.verdict, self.callers.failed
        kept = 0 < verdict.requests <= verdict.turns + max(verdict.errors.total(), len(failed))
        return kept and not self.wrong and (self.may_fail or not failed)

    def line(self) -> str:
        failed = f"; failed: {self.callers.failed[:5]}" if self.callers.failed else ""
        return f"   {'ok' if self.is_right else 'WRONG'}: {self.verdict.line()}{failed}"

    def row(self) -> str:
        faults = {name: len(keys) for name, keys in self.verdict.faults.items()}
        lost, callers = faults.pop(_LOST, 0), self.callers
        p50, longest = statistics.median(callers.pauses), max(callers.pauses)
        counts = f"{callers.answered} | {lost} | {sum(faults.values())} | {len(callers.failed)} | {callers.asked_again}"
        return f"| {self.page} | {self.seconds:.0f} | {counts} | {p50:.1f}, {longest:.1f} |"


async def execute(procedure: Procedure, folder: Path, report: Callable[[str], None], warm: int = 12) -> Outcome:
    """`warm`: answers before the page begins, and after it has ended."""
    folder.mkdir(parents=True)
    stage = await asyncio.to_thread(procedure.stage, folder)
    performing = asyncio.create_task(stage.perform())
    try:
        with _trusting(stage):
            async with Callers(stage.urls, stage.key_file, token=stage.token) as callers:
                seconds = await _page(procedure.page, stage, callers, report, warm)
                await callers.finish()
        verdict = await verdict_after(procedure, stage)
        return Outcome(procedure.page, seconds, callers, verdict, frozenset(procedure.may), procedure.may_fail)
    finally:
        performing.cancel()
        with suppress(asyncio.CancelledError):
            await performing
        await asyncio.to_thread(stage.end)


async def _page(page: str, stage: Stage, callers: Callers, report: Callable[[str], None], warm: int) -> float:
    """The seconds that the page took."""
    program = stage.folder / "page.sh"
    program.write_text(script(page))
    shell = await asyncio.create_subprocess_exec(
        "bash", str(program), cwd=stage.work, env=dict(stage.environment()), stdout=PIPE, stderr=STDOUT
    )
    said: list[str] = []
    reading = asyncio.create_task(_read(shell, said, report))
    try:
        async with asyncio.timeout(PAGE_S):
            while not (stage.work / "run" / "gateway-2.pid").exists() and shell.returncode is None:
                await asyncio.sleep(0.1)
            await _until(callers.answers(warm), reading)
            callers.pauses.clear()  # until here they have waited for the parts to start
            began = time.monotonic()
            (stage.work / "go").touch()
            await reading
        if said[-1:] != ["@@ done"]:
            raise PageError("\n".join(said[-8:]))
        seconds = time.monotonic() - began
        await callers.answers(warm)
        return seconds
    finally:
        reading.cancel()
        if shell.returncode is None:
            shell.kill()


async def _until(waiting: asyncio.Future[None] | object, reading: asyncio.Task[None]) -> None:
    """Wait, unless the shell ends before."""
    task = asyncio.ensure_future(waiting)  # type: ignore[arg-type, var-annotated]
    await asyncio.wait({task, reading}, return_when=asyncio.FIRST_COMPLETED)
    if not task.done():
        task.cancel()
        return
    task.result()


async def _read(shell: asyncio.subprocess.Process, said: list[str], report: Callable[[str], None]) -> None:
    """The parts that it has started keep its output open, so its last line ends the reading."""
    assert shell.stdout is not None
    began = time.monotonic()
    async for raw in shell.stdout:
        said.append(raw.decode(errors="replace").rstrip())
        report(f"{time.monotonic() - began:6.1f} s  {said[-1]}")
        if said[-1] == "@@ done":
            return


@contextmanager
def _trusting(stage: Stage) -> Iterator[None]:
    """The callers' HTTP library trusts this authority."""
    if stage.ca_file is None:
        yield
        return
    former = os.environ.get("SSL_CERT_FILE")
    os.environ["SSL_CERT_FILE"] = str(stage.ca_file)
    try:
        yield
    finally:
        os.environ.pop("SSL_CERT_FILE")
        if former is not None:
            os.environ["SSL_CERT_FILE"] = former
