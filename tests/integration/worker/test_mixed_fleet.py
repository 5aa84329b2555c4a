"""Workers that compute the same model in two arithmetics: an answer that moves between them ends, and never changes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.local.kafka import KafkaCluster
from models.interface.generation import FinishReason
from tests.faults.worker_process import WorkerProcess
from tests.integration.worker.client import Client
from tests.integration.worker.conftest import module_settings

KINDS = {
    "greedy": {"temperature": 0},
    "sampled": {"temperature": 2, "seed": 5},
    "regex": {"temperature": 2, "seed": 7, "response_format": {"type": "regex", "regex": "([a-z]{3,9} ){80}"}},
}
EACH = 3
AT = 30
"""The event of a token with which the first worker dies: all answers have more of them than that."""
QUESTION = "Hi, I am Nina and my order number is 48213."


@pytest.fixture
def workers(kafka: KafkaCluster, tmp_path: Path) -> Iterator[dict[str, WorkerProcess]]:
    """Of one group, by their numeric type."""
    common = module_settings(kafka, tmp_path, engine="torch", model="demo")
    made = {
        dtype: WorkerProcess(
            common.model_copy(update={"dtype": dtype, "data_dir": tmp_path / dtype}), tmp_path / f"{dtype}.log"
        )
        for dtype in ("float32", "bfloat16")
    }
    yield made
    for worker in made.values():
        worker.kill()


async def ask(client: Client, kind: str) -> tuple[str, str]:
    user = client.user()
    return user, await client.ask(user, QUESTION, max_tokens=400, ignore_eos=kind != "regex", **KINDS[kind])


@pytest.mark.parametrize(("first", "second"), [("float32", "bfloat16"), ("bfloat16", "float32")])
async def test_an_answer_that_moves_to_another_arithmetic_ends_as_partial(
    workers: dict[str, WorkerProcess], first: str, second: str
) -> None:
    owner, successor = workers[first], workers[second]
    owner.start().wait_owning(owner.settings.partitions)
    async with Client(owner.settings) as client:
        whole = {kind: await client.answer(*await ask(client, kind)) for kind in KINDS}
        version = whole["greedy"].end.model_version  # type: ignore[union-attr]
        kinds = [kind for kind in KINDS for _ in range(EACH)]
        assert owner.stop() == 0
        owner.plug = ("kill_after_token", AT)
        owner.start()
        under_way = await asyncio.gather(*(ask(client, kind) for kind in kinds))
        await asyncio.to_thread(owner.wait, 120.0)
        successor.start().wait_joined()
        moved = 0
        for kind, (user, request) in zip(kinds, under_way, strict=True):
            answer = await client.answer(user, request)
            assert answer.end is not None
            writers = {event.model_version for event in answer.segments}
            assert len(writers) <= 1, "one arithmetic alone has written"
            if version not in writers:
                continue  # none of its tokens was there when the first worker died
            assert whole[kind].text.startswith(answer.text)
            if answer.end.finish_reason is FinishReason.PARTIAL:
                moved += 1
            else:
                assert {event.epoch for event in answer.segments} == {answer.end.epoch}, (
                    "it had been written to its end"
                )
                assert answer.tokens == whole[kind].tokens
        assert moved
        user, request = await ask(client, "greedy")
        end = (await client.answer(user, request)).end
        assert end is not None
        assert end.model_version != version
