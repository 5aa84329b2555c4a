"""Nothing is waited for that a dead process was to do."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.demo.parts import while_alive
from app.local.process import BackgroundProcess
from app.local.report import LocalError


@pytest.fixture
def process(tmp_path: Path) -> Iterator[BackgroundProcess]:
    process = BackgroundProcess("the worker", f"parley.folder={tmp_path}", tmp_path / "worker.log")
    code = "import time; time.sleep(60)"
    process.spawn([sys.executable, "-X", process.marker, "-c", code], dict(os.environ))
    yield process
    process.kill()


async def test_what_is_done_in_time_is_returned(process: BackgroundProcess) -> None:
    assert await while_alive(process, asyncio.sleep(0, "done")) == "done"


async def test_a_failure_is_raised_as_it_is(process: BackgroundProcess) -> None:
    async def fail() -> None:
        raise ValueError("no answer")

    with pytest.raises(ValueError, match="no answer"):
        await while_alive(process, fail())


async def test_the_end_of_the_process_ends_the_wait(process: BackgroundProcess) -> None:
    asyncio.get_running_loop().call_later(0.1, process.kill)
    with pytest.raises(LocalError, match="the worker exited"):
        await asyncio.wait_for(while_alive(process, asyncio.Event().wait()), 60)
