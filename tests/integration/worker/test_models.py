"""Three that answer in one worker: a model, a second one, and an adapter of the first."""

from __future__ import annotations

import asyncio
import re
import shutil
from pathlib import Path

import pytest

from tests.faults.worker_process import WorkerProcess
from tests.integration.worker.client import Client
from tests.integration.worker.conftest import StartWorker
from tests.unit.models import lora, tiny


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    tiny.save(folder / "first")
    tiny.save(folder / "second", seed=1, num_hidden_layers=1, max_position_embeddings=4096)
    lora.save(folder / "adapters" / "polite", tiny.model())
    lora.save(folder / "adapters" / "passing", tiny.model(), seed=3)
    lora.save(folder / "adapters" / "misfit", tiny.model(hidden_size=128))
    return folder


@pytest.fixture(scope="module")
def worker(start_worker: StartWorker, folder: Path) -> WorkerProcess:
    policy = folder / "policy.toml"
    policy.write_text(f"[models.second]\npath = '{folder}/second'\n")
    return start_worker(
        engine="torch",
        model=str(folder / "first"),
        policy=policy,
        adapters=str(folder / "adapters"),
    )


def test_each_model_is_described_in_the_log_before_its_engine_starts(worker: WorkerProcess, folder: Path) -> None:
    lines = worker.log.read_text().splitlines()
    warm = next(at for at, line in enumerate(lines) if "passed its check" in line)
    for name in ("first", "second"):
        (described,) = [line for line in lines[:warm] if f" model {name}@" in line]
        assert re.search(
            r": LlamaForCausalLM, \S+ \S parameters; float32 on cpu, \d+ threads?; context [\d,]+ tokens; "
            r"weights \S+ [KM]iB, KV cache \S+ [MG]iB, [\d,]+ tokens",
            described,
        )
        assert ("; adapters misfit, passing, polite" in described) == (name == "first")


async def test_a_requests_model_says_who_answers(client: Client) -> None:
    names = [None, "second", "polite"]
    user = client.user()
    ids = [await client.ask(user, "where is my order", model=name, temperature=0, max_tokens=12) for name in names]
    answers = [await client.answer(user, request_id) for request_id in ids]
    versions = [turn.model_version for turn in await client.turns_of(user, 3)]
    first, second, polite = versions
    assert first.startswith("first@")
    assert second.startswith("second@")
    assert polite.startswith(f"{first}+polite@")
    assert len({answer.text for answer in answers}) == 3
    again = await client.asked(client.user(), "where is my order", model=polite, temperature=0, max_tokens=12)
    assert again.segments[0].model_version == polite, "a version is a name as well"


async def test_nobody_of_that_name_and_an_adapter_that_does_not_fit_are_errors_of_their_request(
    client: Client, folder: Path
) -> None:
    unknown = await client.asked(client.user(), model="unknown")
    misfit = await client.asked(client.user(), model="misfit")
    assert [one.end.error.code for one in (unknown, misfit)] == ["model_not_found"] * 2
    assert "polite" in unknown.end.error.message
    assert "does not fit the model" in misfit.end.error.message
    assert not [one for one in (unknown, misfit) if str(folder) in one.end.error.message], (
        "a folder is named to a caller"
    )
    assert (await client.asked(client.user(), "hello", max_tokens=3)).end.error is None


@pytest.mark.slow
async def test_an_answer_goes_on_with_its_own_model_and_ends_as_partial_without_it(
    worker: WorkerProcess, client: Client, folder: Path
) -> None:
    asks = {"second": "second", "polite": "polite", "passing": "passing"}
    users = {name: client.user() for name in asks}
    endless = {"max_tokens": 400, "logit_bias": {"0": -100}}
    ids = {name: await client.ask(users[name], "tell me all", model=model, **endless) for name, model in asks.items()}
    await asyncio.gather(*(client.begun(users[name], ids[name], 5) for name in asks))
    worker.kill()
    shutil.rmtree(folder / "adapters" / "passing")
    shutil.rmtree(folder / "second")
    tiny.save(folder / "second", seed=2, max_position_embeddings=4096)
    worker.start()
    await asyncio.to_thread(worker.wait_joined)
    second, polite, passing = [await client.answer(users[name], ids[name]) for name in asks]
    assert second.end.finish_reason == "partial", "another model of that name"
    assert passing.end.finish_reason == "partial", "no model has that name any more"
    assert (polite.end.finish_reason, len(polite.tokens)) == ("length", 400)
    assert len({segment.model_version for segment in polite.segments}) == 1
