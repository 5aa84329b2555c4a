"""What a worker tells of its start, and how it tells a mistake before it has loaded anything."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from app.local.kafka import KafkaCluster
from app.local.ports import LOOPBACK
from app.process.folder_lock import locked
from app.settings import Settings
from tests.faults.worker_process import WorkerProcess
from tests.integration.worker.client import Client
from tests.integration.worker.conftest import module_settings

LOADS = "loading the model"
Spoil = Callable[[WorkerProcess, ExitStack], str]


@pytest.fixture
def settings(kafka: KafkaCluster, tmp_path: Path) -> Settings:
    return module_settings(kafka, tmp_path, engine="torch")


def test_a_start_is_a_handful_of_lines_that_name_the_model_and_what_to_try(settings: Settings, tmp_path: Path) -> None:
    with WorkerProcess(settings, tmp_path / "worker.log") as worker:
        try:
            worker.wait_owning(settings.partitions)
            worker.wait_logged(rb"ready: ")
            # On a busy machine loading may take so long that it is told, and a model may be warned of.
            lines = [
                line
                for line in worker.log.read_text().splitlines()
                if not re.search(r"still loading|\[WARNING\] model", line)
            ]
        finally:
            worker.kill()
    web = f"http://127.0.0.1:{worker.web_port}"
    shapes = [
        r"^parley \S+: a worker starts; Ctrl-C stops it$",
        rf"Kafka at {settings.cluster} answers; loading the model demo",
        r"model demo@\w+: LlamaForCausalLM, 1.18 M parameters; float32 on cpu, \d+ threads?; context 1,024 tokens; ",
        r"demo@\w+ passed its check",
        r"taken over: 0: epoch \d+, 1: epoch \d+; 0 answers to continue, 0 rows restored",
        rf"ready: 2 of 2 partitions of the group {settings.group}; no index; health and metrics at {web}; try",
    ]
    assert len(lines) == len(shapes), "\n".join(lines)
    for line, shape in zip(lines, shapes, strict=True):
        assert re.search(shape, line), line


def test_a_successor_tells_how_many_answers_it_continues(kafka: KafkaCluster, tmp_path: Path) -> None:
    """One that has ended is not among them, nor one that has not begun."""
    settings = module_settings(kafka, tmp_path, paced_tokens_per_s=5.0)
    with WorkerProcess(settings, tmp_path / "first.log") as first:
        first.wait_owning(settings.partitions)
        asyncio.run(_with_one_in_mid_answer(settings))
        first.kill()
    with WorkerProcess(settings, tmp_path / "second.log") as second:
        try:
            second.wait_owning(settings.partitions)
            second.wait_logged(rb"ready: ")
            told = re.findall(r"; (\d+ answers?) to continue, \d+ rows? restored", second.log.read_text())
        finally:
            second.kill()
    assert sorted({*told} - {"0 answers"}) == ["1 answer"], told


async def _with_one_in_mid_answer(settings: Settings) -> None:
    async with Client(settings) as client:
        await client.asked("ann", max_tokens=1)
        await client.turns_of("ann", 1)
        asked = await client.ask("ann", max_tokens=3000)
        await client.ask("ann", max_tokens=1)  # waits for the one before it
        await client.begun("ann", asked)


def lock_is_held(worker: WorkerProcess, held: ExitStack) -> str:
    folder = worker.settings.data_dir
    folder.mkdir(parents=True)
    held.enter_context(locked(folder / "lock", "", lambda _: None))
    return f"{folder} is in use by another worker: stop that one, or give this one its own: PARLEY_DATA_DIR="


def port_is_taken(worker: WorkerProcess, held: ExitStack) -> str:
    held.enter_context(socket.create_server((LOOPBACK, worker.web_port)))
    return f"port {worker.web_port} is in use: choose another with --web-port"


def no_folder(worker: WorkerProcess, _: ExitStack) -> str:
    worker.settings = worker.settings.model_copy(update={"model": "/nope"})
    return "model /nope: there is no such folder"


def no_weights(worker: WorkerProcess, _: ExitStack) -> str:
    folder = worker.log.parent / "empty"
    folder.mkdir()
    worker.settings = worker.settings.model_copy(update={"model": str(folder)})
    return f"model {folder}: no *.safetensors in {folder}; other formats are not read"


def wrong_partitions(worker: WorkerProcess, _: ExitStack) -> str:
    worker.settings = worker.settings.model_copy(update={"partitions": 7})
    return f"the topic '{worker.settings.topic('requests')}' has 2 partitions, not 7: set PARLEY_PARTITIONS=2"


@pytest.mark.parametrize("spoil", [lock_is_held, port_is_taken, no_folder, no_weights, wrong_partitions])
def test_a_mistake_is_told_in_one_line_before_anything_is_loaded(
    settings: Settings, tmp_path: Path, spoil: Spoil
) -> None:
    worker = WorkerProcess(settings, tmp_path / "worker.log")
    with ExitStack() as held:
        told = spoil(worker, held)
        assert worker.start().wait(120) == 2
    lines = worker.log.read_text().splitlines()
    assert lines[-1].startswith(f"parley: {told}")
    assert not any(LOADS in line for line in lines)
