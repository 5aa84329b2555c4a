"""A worker before vLLM's server: the worker is killed, or the server, while answers of all kinds are under way."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.local.kafka import KafkaCluster
from tests.engines.kills import KINDS, PARTIAL, ROUNDS, SAME, TOLD, TOOLS, Tally, asked, begin, whole_answers
from tests.engines.server_process import NAME
from tests.engines.vllm_server import VllmServer
from tests.faults.worker_process import WorkerProcess
from tests.integration.worker.client import Client
from tests.integration.worker.conftest import module_settings

pytestmark = [pytest.mark.slow, pytest.mark.timeout(7200)]

POLICY = """
[models.{name}]
engine = "openai"
urls = ["{url}"]
model = "{served}"
dialect = "{dialect}"
patience_s = 600
{more}
"""
SPEAKS = {"ids": ("vllm", ""), "exact": ("vllm", "redraws = false"), "plain": ("openai", "")}
"""By the name of the model in the policy."""
EXPECTED = {
    "ids": {"greedy": SAME, "long prompt": SAME, "sampled": TOLD, "JSON": PARTIAL, "regex": PARTIAL},
    "exact": {"greedy": SAME, "long prompt": SAME, "sampled": PARTIAL, "JSON": PARTIAL, "regex": PARTIAL},
    "plain": {"JSON": PARTIAL},
}
"""Without vLLM's parameters answers of other kinds end too soon to be interrupted."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VllmServer]:
    with VllmServer(tmp_path_factory.mktemp("server")) as made:
        yield made


@pytest.fixture(scope="module")
def worker(
    kafka: KafkaCluster, server: VllmServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[WorkerProcess]:
    folder: Path = tmp_path_factory.mktemp("worker")
    policy = folder / "policy.toml"
    policy.write_text(
        "".join(
            POLICY.format(name=name, url=server.url, served=NAME, dialect=dialect, more=more)
            for name, (dialect, more) in SPEAKS.items()
        )
    )
    settings = module_settings(kafka, folder, policy=policy)
    with WorkerProcess(settings, folder / "worker.log") as worker:
        worker.wait_owning(settings.partitions)
        yield worker


@pytest.mark.parametrize(
    ("model", "killed"), [("ids", "worker"), ("exact", "worker"), ("plain", "worker"), ("ids", "server")]
)
async def test_readers_get_the_same_words_or_are_told(
    worker: WorkerProcess, server: VllmServer, model: str, killed: str
) -> None:
    kinds = {kind: {**KINDS[kind], "model": model} for kind in EXPECTED[model]}
    async with Client(worker.settings) as client:
        tally = Tally(await whole_answers(client, kinds))
        for number in range(ROUNDS):
            under_way = await begin(client, kinds, tokens=3)
            if killed == "worker":
                worker.kill()
                worker.start()
                await asyncio.to_thread(worker.wait_joined)
            else:
                await asyncio.to_thread(server.kill)
                server.start()
                await asyncio.to_thread(server.wait_ready)
            await tally.add(client, under_way, killed)
            print(f"\n{model!r}: the {killed} killed {number + 1} times:\n{tally.table()}", flush=True)
        for kind, found in tally.outcomes.items():
            # what had been sent to its end before the kill is whole
            assert set(found) <= {EXPECTED[model][kind], SAME}, kind
            assert found[EXPECTED[model][kind]], kind
        assert set(tally.outcomes) == set(kinds)


async def test_tools_are_refused_before_the_answer_begins(worker: WorkerProcess) -> None:
    async with Client(worker.settings) as client:
        for model in SPEAKS:
            user = client.user()
            answer = await client.answer(user, await client.ask(user, **asked({**TOOLS, "model": model})))
            assert answer.end is not None
            assert answer.end.error is not None
            assert (answer.text, answer.end.error.code) == ("", "invalid_request")
