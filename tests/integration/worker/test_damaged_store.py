"""A worker whose RocksDB is damaged restores it and goes on; one that may not use its store ends and keeps it."""

from __future__ import annotations

import asyncio
from pathlib import Path

from app.process.process_end import ExitCode
from models.interface.generation import Usage
from tests.faults.worker_process import WorkerProcess
from tests.integration.worker.client import Client
from tests.integration.worker.conftest import StartWorker

USER = "nina"


def lines(worker: WorkerProcess, since: int, words: str) -> list[str]:
    return [line for line in worker.log.read_bytes()[since:].decode().splitlines() if words in line]


async def ask(worker: WorkerProcess, *prompts: str) -> Usage | None:
    """The last answer's usage."""
    async with Client(worker.settings) as client:
        answers = [await client.asked(USER, prompt, max_tokens=2) for prompt in prompts]
    end = answers[-1].end
    return None if end is None else end.usage


def with_rows(start_worker: StartWorker) -> tuple[WorkerProcess, list[Path]]:
    """A worker that has ended and left rows in an SST; its SSTs, the largest last."""
    worker = start_worker(partitions=1)
    asyncio.run(ask(worker, *(f"question {number} " + "x" * 2000 for number in range(8))))
    assert worker.stop() == 0
    return worker, sorted(worker.settings.data_dir.rglob("*.sst"), key=lambda file: file.stat().st_size)


def test_a_damaged_block_that_is_met_at_work_costs_one_restore(start_worker: StartWorker) -> None:
    worker, files = with_rows(start_worker)
    good = files[-1].read_bytes()
    at = len(good) // 4
    files[-1].write_bytes(good[:at] + bytes([good[at] ^ 0xFF]) + good[at + 1 :])
    since = worker.log.stat().st_size
    worker.start()
    worker.wait_joined()
    usage = asyncio.run(ask(worker, "and now?"))
    assert usage is not None
    assert usage.prompt_tokens > 8  # the history is there again
    assert len(lines(worker, since, "wiped and restored")) == 1
    assert worker.exit_code is None
    assert not lines(worker, since, "Traceback")
    assert worker.stop() == 0


def test_a_store_without_rights_ends_the_start_with_one_line_and_stays(start_worker: StartWorker) -> None:
    worker, files = with_rows(start_worker)
    before = {file: file.read_bytes() for file in files}
    lock = files[0].parent / "LOCK"
    lock.unlink()
    lock.mkdir()  # even root cannot open it for writing
    since = worker.log.stat().st_size
    worker.start()
    assert worker.wait(120) in (ExitCode.WRONG_USE, ExitCode.FAILED)
    (line,) = lines(worker, since, "the worker stops: ")
    assert "is kept" in line
    for word in ("Traceback", "Crashed", "NoneType: None", "Reraising"):
        assert not lines(worker, since, word)
    assert {file: file.read_bytes() for file in files} == before
