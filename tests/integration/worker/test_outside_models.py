"""Models behind outside servers, on a real worker that is killed in the middle of an answer, as is the server."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.wire.audit import AuditAction, AuditRecord
from app.wire.codec import decode
from app.wire.event import FALLBACK, TokenEvent
from models.served.paced import BytePrompts, word
from tests.faults.worker_process import WorkerProcess
from tests.integration.worker.client import Client
from tests.integration.worker.conftest import StartWorker
from tests.integration.worker.test_health import series, total
from tests.unit.models.remote.outside import WORDS, OutsideServer, outside_server_in_a_thread

POLICY = """
[models.outside]
engine = "openai"
urls = ["{url}"]
model = "served-name"
dialect = "vllm"
silence_s = 60
patience_s = 60

[[routes]]
name = "out"
when = {{ tenant = ["acme"] }}
model = "plain"

[[routes]]
name = "trial"
when = {{ tenant = ["lab"] }}
experiment = "outside"
arms = [{{ model = "default", weight = 50 }}, {{ model = "plain", weight = 50 }}]
retreat = {{ arm = "plain" }}

[fallback]
chain = ["plain", "default"]
failures = 3
retry_s = 2

[models.plain]
engine = "openai"
urls = ["{url}"]
model = "served-name"
silence_s = 60
"""


@pytest.fixture(scope="module")
def outside() -> Iterator[OutsideServer]:
    with outside_server_in_a_thread() as server:
        yield server


@pytest.fixture(scope="module")
def worker(
    start_worker: StartWorker, outside: OutsideServer, tmp_path_factory: pytest.TempPathFactory
) -> WorkerProcess:
    path: Path = tmp_path_factory.mktemp("policy") / "policy.toml"
    path.write_text(POLICY.format(url=outside.url))
    return start_worker(policy=path)


def words(text: str) -> list[str]:
    return text.split()


async def test_an_outside_model_answers_and_remembers(client: Client, outside: OutsideServer) -> None:
    user = client.user()
    first = await client.asked(user, "hello", model="outside", max_tokens=5)
    assert words(first.text) == words("".join(WORDS[:5]))
    assert first.end.usage.completion_tokens == 5
    assert first.end.model_version == "outside@served-name"
    await client.asked(user, "again", model="outside", max_tokens=2)
    assert [one["content"] for one in outside.bodies[-1]["messages"]] == ["hello", first.text, "again"]


@pytest.mark.parametrize(
    ("model", "reason", "tells_ids"),
    [("outside", "length", False), ("outside", "length", True), ("plain", "partial", False)],
)
async def test_an_answer_goes_on_behind_its_last_word_after_the_worker_is_killed(
    worker: WorkerProcess, client: Client, outside: OutsideServer, model: str, reason: str, tells_ids: bool
) -> None:
    outside.says_most, outside.tells_ids = 30, tells_ids
    user = client.user()
    request_id = await client.ask(user, "hello", model=model, max_tokens=100)
    begun = await client.begun(user, request_id, 20)
    worker.kill()
    outside.says_most = None
    worker.start()
    answer = await client.answer(user, request_id)
    outside.tells_ids = False
    found = words(answer.text)
    assert found == words("".join(WORDS[: len(found)]))
    assert answer.end.finish_reason == reason
    assert len(found) >= (95 if reason == "length" else len(words(begun.text)) - 1)


async def test_a_model_that_fails_in_the_middle_is_followed_from_the_next_token_on(
    worker: WorkerProcess, client: Client, outside: OutsideServer
) -> None:
    """The worker is killed while the second model writes: the third part continues where the second one was."""
    outside.trouble, outside.after = "close", 4
    user = client.user()
    try:
        request_id = await client.ask(user, "hello", tenant="acme", max_tokens=150)
        await client.begun(user, request_id, len("".join(WORDS[:4])) + 20)
        worker.kill()
    finally:
        outside.trouble = ""
    worker.start()
    answer = await client.answer(user, request_id)
    assert answer.complete
    assert answer.end.finish_reason == "length"
    begun = "".join(WORDS[:4])
    assert answer.text.startswith(begun)
    prompt = BytePrompts().build("", (), "hello").ids
    first = len(BytePrompts().ids_of(begun))
    assert answer.text == begun + "".join(word(prompt, at)[1] for at in range(first, 150))
    assert {event.model_version for event in answer.segments} == {"plain@served-name", "paced@1"}
    events = [decode(TokenEvent, record.value, record.headers) for record in await client.records("tokens")]
    notices = [event for event in events if event.request_id == request_id and event.notice]
    (taken_over,) = [event for event in notices if event.notice.code == FALLBACK]
    assert taken_over.index == len(begun)
    (turn,) = await client.turns_of(user, 1)
    assert (turn.answer, turn.route) == (answer.text, "out")


async def test_a_canary_that_fails_loses_its_users_and_none_of_them_sees_an_error(
    worker: WorkerProcess, client: Client, outside: OutsideServer
) -> None:
    outside.trouble = "500"
    answers = []
    try:
        async with asyncio.timeout(120):
            while total(series(worker), "parley:canary_out", experiment="outside", arm="plain") == 0:
                answers.append(await client.asked(client.user(), "hello", tenant="lab", max_tokens=3))
    finally:
        outside.trouble = ""
    assert {answer.end.error for answer in answers} == {None}
    asked = len(outside.bodies)
    users = [client.user() for _ in range(12)]
    for user in users:
        await client.asked(user, "hello", tenant="lab", max_tokens=3)
    assert len(outside.bodies) == asked, "the server is well again, and gets no new user"
    assert {turn.arm for user in users for turn in await client.turns_of(user, 1)} == {"default"}
    audited = [decode(AuditRecord, record.value, record.headers) for record in await client.records("audit")]
    assert [one.arm for one in audited if one.action is AuditAction.RETREAT] == ["plain"]
    async with asyncio.timeout(120):  # other tests need a server that its breaker lets through again
        while (await client.asked(client.user(), "hi", model="plain", max_tokens=1)).end.error is not None:
            await asyncio.sleep(0.5)
