"""Moderation on a real worker: what the policy blocks is on no topic that readers see."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.wire.audit import AuditRecord
from app.wire.codec import decode
from app.wire.event import TokenEvent
from models.interface.generation import FinishReason
from tests.faults.worker_process import WorkerProcess
from tests.integration.worker.client import Client
from tests.integration.worker.conftest import StartWorker
from tests.unit.models.remote.outside import OutsideServer

POLICY = """
[models.outside]
engine = "openai"
urls = ["{url}"]
model = "served-name"
dialect = "vllm"
silence_s = 5

[guard]
prompt = {{ injection = "block", profanity = "flag" }}
answer = {{ profanity = "block" }}
"""

INSULT = "You fucking moron, I hate you"
"""The outside server repeats what a user says."""


@pytest.fixture(scope="module", autouse=True)
def worker(
    start_worker: StartWorker, outside: OutsideServer, tmp_path_factory: pytest.TempPathFactory
) -> WorkerProcess:
    path: Path = tmp_path_factory.mktemp("policy") / "policy.toml"
    path.write_text(POLICY.format(url=outside.url))
    return start_worker(policy=path)


async def test_a_blocked_sentence_of_an_answer_is_not_written(client: Client, outside: OutsideServer) -> None:
    user = client.user()
    outside.pause_s = 0.005  # a worker that falls behind gets several sentences at once, and judges them as one
    harmless = "This is a sentence without harm. " * 40
    answer = await client.asked(user, f"{harmless}{INSULT}", model="outside")
    assert answer.end is not None
    assert answer.end.finish_reason is FinishReason.FILTERED
    assert answer.text
    assert f"You said {harmless}".startswith(answer.text)
    events = [decode(TokenEvent, one.value, one.headers) for one in await client.records("tokens")]
    assert [event for event in events if "moron" in (event.text or "")] == []
    notices = [event.notice for event in events if event.user_id == user and event.notice is not None]
    assert {"category": "profanity"} in [notice.details for notice in notices if notice.code == "filtered"]
    (turn,) = await client.turns_of(user, 1)
    assert turn.answer == answer.text
    assert turn.guard == ("profanity",), "flagged in the prompt and blocked in the answer"
    audits = [decode(AuditRecord, one.value, one.headers) for one in await client.records("audit")]
    assert [one.categories for one in audits if one.user_id == user] == [("profanity",)]
