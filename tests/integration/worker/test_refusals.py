"""A worker that cannot work as it is set up prints one line and ends with exit code 2."""

from __future__ import annotations

import asyncio
import re
import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from app.local.ports import free_port
from app.settings import Settings
from tests.conftest import NewSettings
from tests.environment import environment_of, parley
from tests.faults.worker_process import FAUST, ROOT, WorkerProcess
from tests.unit.kafka.test_broker_version import broker
from tests.unit.models import tiny
from tests.with_constants import command_with


def refused(settings: Settings, folder: Path, arguments: tuple[str, ...] = (), **environment: str) -> str:
    """The one line that the worker says before it ends with exit code 2."""
    (line,) = printed(settings, folder, 2, arguments, **environment)
    return line


def printed(
    settings: Settings,
    folder: Path,
    code: int,
    arguments: tuple[str, ...] = (),
    faust: Sequence[str] = (str(FAUST),),
    **environment: str,
) -> list[str]:
    """What the worker says before it ends with this exit code."""
    ended = subprocess.run(  # noqa: PLW1510 - the exit code is what is looked at
        [*faust, "-A", "app", "worker", "-l", "error", *(arguments or ("--web-port", str(free_port())))],
        env={**environment_of(settings), **environment},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ended.returncode == code, ended.stderr
    assert "Traceback" not in ended.stderr
    return [line for line in ended.stderr.splitlines() if line.startswith("parley: ")]


@pytest.fixture
async def paced(new_settings: NewSettings) -> Settings:
    return await new_settings(engine="paced", embedder="none")


async def test_a_wrong_value_names_the_setting(paced: Settings, tmp_path: Path) -> None:
    assert "PARLEY_PARTITIONS=many" in refused(paced, tmp_path, PARLEY_PARTITIONS="many")


async def test_topics_with_another_number_of_partitions(paced: Settings, tmp_path: Path) -> None:
    assert "PARLEY_PARTITIONS=4" in refused(paced, tmp_path, PARLEY_PARTITIONS="3")


async def test_topics_that_are_not_there(paced: Settings, tmp_path: Path) -> None:
    assert "parley topics create" in refused(paced, tmp_path, PARLEY_TOPIC_PREFIX="unknown-")


async def test_a_kafka_that_is_too_old_is_refused_by_all_who_serve(paced: Settings, tmp_path: Path) -> None:
    async with broker("3.9.1") as cluster:
        old = paced.model_copy(update={"broker": f"kafka://{cluster}"})
        told = [await asyncio.to_thread(refused, old, tmp_path)]
        for arguments in (["topics", "create"], ["gateway", "--port", "0"]):
            ended = await asyncio.to_thread(parley, old, tmp_path, *arguments)
            assert ended.returncode == 2, ended.stderr
            told += ended.stderr.splitlines()
    assert len(told) == 3, told
    assert all("is Kafka 3.9, and Parley needs 4.0 or later" in line for line in told)


async def test_a_broker_that_is_not_there_is_waited_for_and_is_no_wrong_use(paced: Settings, tmp_path: Path) -> None:
    faust = command_with({"app.kafka.patience.START_WAIT_S": 1.0}, "faust")
    away = {"PARLEY_BROKER": "kafka://127.0.0.1:1", "PYTHONPATH": str(ROOT)}
    first, last = printed(paced, tmp_path, 1, (), faust=faust, **away)
    assert "parley local up" in last
    assert first == f"{last}; waiting for it for 1 s"


async def test_a_data_directory_that_another_worker_has(paced: Settings, tmp_path: Path) -> None:
    with WorkerProcess(paced, tmp_path / "first.log") as first:
        await asyncio.to_thread(first.wait_joined)
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
            waiting, line = printed(paced, tmp_path, 2, ("--web-bind", "127.0.0.1", "--web-port", str(port)))
        assert "waiting for it" in waiting, "a former worker may be about to end"
        assert re.search(rf"its own: PARLEY_DATA_DIR={re.escape(str(paced.data_dir))}-2 and --web-port \d+$", line), (
            line
        )
        assert first.stop() == 0


async def test_a_port_that_another_server_has(paced: Settings, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        line = refused(paced, tmp_path, arguments=("--web-bind", "127.0.0.1", "--web-port", str(port)))
    assert line == f"parley: port {port} is in use: choose another with --web-port"


def test_a_misspelt_option_is_one_line() -> None:
    for program in (["parley", "worker"], ["faust", "-A", "app", "worker"]):
        command = [str(FAUST.with_name(program[0])), *program[1:], "--web-prt", "1"]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, cwd=ROOT)
        line = ended.stderr.splitlines()[-1]
        assert ended.returncode == 2
        assert line.startswith("Error: No such option"), ended.stderr
        assert "worker --help" in line
        assert "Usage:" not in ended.stderr


async def test_a_data_directory_that_cannot_be_made(paced: Settings, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    folder = str(tmp_path / "file" / "below")
    assert f"PARLEY_DATA_DIR={folder}" in refused(paced, tmp_path, PARLEY_DATA_DIR=folder)


async def test_a_checkpoint_that_cannot_be_served(paced: Settings, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "mystery"}')
    assert str(tmp_path) in refused(paced, tmp_path, PARLEY_ENGINE="torch", PARLEY_MODEL=str(tmp_path))


async def test_model_that_only_computing_shows_to_be_wrong(new_settings: NewSettings, tmp_path: Path) -> None:
    tiny.save(tmp_path / "model", kind="gpt_oss", num_local_experts=4, layer_types=["full_attention"] * 2)
    settings = await new_settings(engine="torch", embedder="none", model=str(tmp_path / "model"))
    assert "this model's attention uses a feature" in refused(settings, tmp_path)
