"""A worker that cannot work as it is set up says so in one line and ends with exit code 2."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from app.local.ports import free_port
from app.settings import Settings
from tests.conftest import NewSettings
from tests.environment import environment_of
from tests.faults.worker_process import FAUST


def refused(settings: Settings, folder: Path, **environment: str) -> str:
    """The one line that the worker says before it ends with exit code 2."""
    ended = subprocess.run(  # noqa: PLW1510 - the exit code is what is looked at
        [FAUST, "-A", "app", "worker", "-l", "error", "--web-port", str(free_port())],
        env={**environment_of(settings), **environment},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ended.returncode == 2, ended.stderr
    (line,) = [line for line in ended.stderr.splitlines() if line.startswith("parley: ")]
    assert "Traceback" not in ended.stderr
    return line


@pytest.fixture
async def paced(new_settings: NewSettings) -> Settings:
    return await new_settings(engine="paced", embedder="none")


async def test_a_wrong_value_names_the_setting(paced: Settings, tmp_path: Path) -> None:
    assert "PARLEY_PARTITIONS=many" in refused(paced, tmp_path, PARLEY_PARTITIONS="many")


async def test_topics_with_another_number_of_partitions(paced: Settings, tmp_path: Path) -> None:
    assert "PARLEY_PARTITIONS=4" in refused(paced, tmp_path, PARLEY_PARTITIONS="3")


async def test_topics_that_are_not_there(paced: Settings, tmp_path: Path) -> None:
    assert "parley topics create" in refused(paced, tmp_path, PARLEY_TOPIC_PREFIX="nobody-")


async def test_a_broker_that_is_not_there(paced: Settings, tmp_path: Path) -> None:
    assert "parley local up" in refused(paced, tmp_path, PARLEY_BROKER="kafka://127.0.0.1:1")


async def test_a_checkpoint_that_cannot_be_served(paced: Settings, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "mystery"}')
    assert str(tmp_path) in refused(paced, tmp_path, PARLEY_ENGINE="torch", PARLEY_MODEL=str(tmp_path))
