"""auto-gptq's checkpoint answers over Kafka; a broken one ends the worker with one line and exit code 2."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from app.settings import Settings
from models.demo import CHECKPOINT
from tests.conftest import NewSettings
from tests.faults.worker_process import WorkerProcess
from tests.integration.worker.client import Client
from tests.integration.worker.conftest import StartWorker
from tests.integration.worker.test_refusals import refused

GPTQ = Path(__file__).parents[2] / "fixtures" / "gptq" / "demo-4bit"


@pytest.fixture(scope="module")
def worker(start_worker: StartWorker) -> WorkerProcess:
    return start_worker(engine="torch", model=str(GPTQ))


async def test_a_gptq_checkpoint_answers_and_says_so(client: Client) -> None:
    user = client.user()
    answer = await client.asked(user, "Where is my order 48213?", temperature=0, max_tokens=40)
    assert "48213" in answer.text
    (turn,) = await client.turns_of(user, 1)
    assert turn.model_version.startswith("demo-4bit@")
    assert turn.model_version.endswith("+gptq4")


def break_off(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1000])


def pickled(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


def configured(**changes: object) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        path = folder / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))

    return change


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (break_off, "model.safetensors has"),
        pytest.param(pickled, "is a pickle, which runs code", marks=pytest.mark.slow),
        pytest.param(configured(hidden_size=256), "and its config says", marks=pytest.mark.slow),
        pytest.param(configured(model_type="own", auto_map={}), "TRUST_REMOTE_CODE", marks=pytest.mark.slow),
        pytest.param(configured(quantization_config={"quant_method": "awq"}), "with awq", marks=pytest.mark.slow),
    ],
)
async def test_a_broken_checkpoint_ends_the_worker_with_one_line(
    new_settings: NewSettings, tmp_path: Path, spoil: Callable[[Path], None], message: str
) -> None:
    settings: Settings = await new_settings(engine="torch", embedder="none")
    folder = shutil.copytree(CHECKPOINT, tmp_path / "model")
    spoil(folder)
    assert message in refused(settings, tmp_path, PARLEY_MODEL=str(folder))
