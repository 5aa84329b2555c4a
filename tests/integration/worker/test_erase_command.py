"""`parley erase` waits for what workers do."""

from __future__ import annotations

from pathlib import Path

from tests.faults.worker_process import WorkerProcess
from tests.integration.commands.terminal import Terminal
from tests.integration.worker.client import Client


async def test_the_command_ends_when_all_partitions_have_erased(
    worker: WorkerProcess, client: Client, tmp_path: Path
) -> None:
    await client.ask(user="ann", prompt="remember me", max_tokens=2)
    of_one = await Terminal(worker.settings, tmp_path).run("erase", "ann", "--conversation", "default", "--yes")
    assert of_one.out == (
        f"conversation default of ann is erased: memory and search, {worker.settings.partitions} partitions\n"
    )
    erase = await Terminal(worker.settings, tmp_path).run("erase", "ann", "--yes")
    assert (erase.code, erase.out) == (
        0,
        f"ann is erased: memory and search, {worker.settings.partitions} partitions\n",
    )
