"""Execute one page while users ask, and judge what became of their answers."""

from __future__ import annotations

import asyncio
import os
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tests.faults.verdict import Verdict
from tests.operations.callers import Callers
from tests.operations.page import DONE, READY
from tests.operations.procedures import Procedure, verdict_after
from tests.operations.shell import PageError, Shell
from tests.operations.stage import Stage

PAGE_S = 780.0
"""Less than the timeout of a test, which would not say what is waited for."""
_LOST = "lost"
HEAD = """\
| page | seconds | answers | lost | doubled, torn or changed | failed | asked again | longest pause (p50, max s) |
|---|---|---|---|---|---|---|---|"""


@dataclass(frozen=True)
class Outcome:
    page: str
    seconds: float
    callers: Callers
    verdict: Verdict
    may: frozenset[str]
    may_fail: bool
    transcript: str
    """What the callers, the shell and the parts have written."""

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
        line = self.verdict.line()
        return f"   ok: {line}" if self.is_right else f"   WRONG: {line}\n{self.transcript}"

    def row(self) -> str:
        faults = {name: len(keys) for name, keys in self.verdict.faults.items()}
        lost, callers = faults.pop(_LOST, 0), self.callers
        p50, longest = statistics.median(callers.pauses), max(callers.pauses)
        counts = f"{callers.answered} | {lost} | {sum(faults.values())} | {len(callers.failed)} | {callers.asked_again}"
        return f"| {self.page} | {self.seconds:.0f} | {counts} | {p50:.1f}, {longest:.1f} |"


async def execute(procedure: Procedure, folder: Path, report: Callable[[str], None], warm: int = 12) -> Outcome:
    """`warm`: answers before the page begins, and after it has ended. Raises `PageError`."""
    folder.mkdir(parents=True)
    stage = await asyncio.to_thread(procedure.stage, folder)
    performing = asyncio.create_task(stage.perform())
    shell, callers = Shell(stage, report), Callers(stage.urls, stage.key_file, token=stage.token)
    try:
        with _trusting(stage):
            async with asyncio.timeout(PAGE_S):
                seconds = await _page(procedure.page, stage, shell, callers, warm)
                verdict = await verdict_after(procedure, stage)
        may, transcript = frozenset(procedure.may), f"{callers.summary()}\n{shell.transcript()}"
        return Outcome(procedure.page, seconds, callers, verdict, may, procedure.may_fail, transcript)
    except Exception as error:
        raise PageError(f"{error!r}\n{callers.summary()}\n{shell.transcript()}") from error
    finally:
        performing.cancel()
        with suppress(asyncio.CancelledError):
            await performing
        await shell.end()
        await asyncio.to_thread(stage.end)


async def _page(page: str, stage: Stage, shell: Shell, callers: Callers, warm: int) -> float:
    """The seconds that the page took. Nobody asks before the parts are ready: a busy machine starts them in minutes."""
    await shell.start(page)
    await shell.until(READY)
    async with callers:
        await callers.answers(warm)
        callers.pauses.clear()
        began = time.monotonic()
        (stage.work / "go").touch()
        await shell.until(DONE)
        seconds = time.monotonic() - began
        await callers.answers(warm)
        await callers.finish()
    return seconds


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
