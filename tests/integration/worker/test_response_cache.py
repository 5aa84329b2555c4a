"""The response cache on a real worker: what a crash changes. Who gets a repeated answer: tests/unit/features/stages."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.worker_process import WorkerProcess
from tests.integration.worker.client import Client
from tests.integration.worker.conftest import StartWorker

POLICY = """
[cache]
ttl_s = 60
"""


@pytest.fixture(scope="module")
def worker(start_worker: StartWorker, tmp_path_factory: pytest.TempPathFactory) -> WorkerProcess:
    path: Path = tmp_path_factory.mktemp("policy") / "policy.toml"
    path.write_text(POLICY)
    return start_worker(policy=path, paced_tokens_per_s=20.0)


async def test_a_follower_is_the_same_after_its_worker_is_killed(worker: WorkerProcess, client: Client) -> None:
    user = client.user()
    long = {"temperature": 0, "max_tokens": 2000}
    first = await client.ask(user, "killed", conversation_id="a", **long)
    await client.begun(user, first)
    follower = await client.ask(user, "killed", conversation_id="b", **long)
    await client.begun(user, follower, 20)
    worker.kill()  # long before the answers would have ended
    worker.settings = worker.settings.model_copy(update={"paced_tokens_per_s": 2000.0})
    worker.start()
    whole, followed = await client.answer(user, first), await client.answer(user, follower)
    assert followed.complete
    assert followed.tokens == whole.tokens
    turns = {turn.request_id: turn for turn in await client.turns_of(user, 2)}
    # What the next owner generates of it is charged: no recording has outlived the worker.
    assert (turns[follower].cached, turns[first].cached) == (None, None)
