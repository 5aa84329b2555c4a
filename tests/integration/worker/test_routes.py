"""Routes of the policy file on a real worker: who answers, what is recorded, and who answers after a crash."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from openai import AsyncOpenAI

from app.wire.codec import decode
from app.wire.event import Notice, TokenEvent
from tests.faults.worker_process import WorkerProcess
from tests.integration.commands.terminal import Terminal
from tests.integration.gateway.gateway_process import GatewayProcess
from tests.integration.worker.client import PATIENCE_S, Client
from tests.integration.worker.conftest import StartWorker

MODELS = """
[models.small]
path = "small"
engine = "paced"
paced_tokens_per_s = 200
"""
ROUTES = """
[[routes]]
name = "relief"
when = { tenant = ["busy"], first_token_p95_ms_above = 0 }
model = "small"
notice = "degraded"

[[routes]]
name = "acme's"
when = { tenant = ["acme"] }
model = "small"

[[routes]]
name = "tone-test"
when = { tenant = ["lab"] }
experiment = "tone"
arms = [{ model = "default", weight = 50 }, { model = "small", weight = 50 }]
"""
LONG = "where is my order"


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("policy") / "policy.toml"
    path.write_text(MODELS + ROUTES)
    return path


@pytest.fixture(scope="module")
def worker(start_worker: StartWorker, policy: Path) -> WorkerProcess:
    return start_worker(policy=policy, gateway_wait_s=5.0)


@pytest.fixture(autouse=True)
def _first_policy(policy: Path) -> Iterator[None]:
    yield
    policy.write_text(MODELS + ROUTES)


async def notices(client: Client, request_id: str) -> list[Notice]:
    events = [decode(TokenEvent, record.value, record.headers) for record in await client.records("tokens")]
    return [event.notice for event in events if event.request_id == request_id and event.notice is not None]


async def logged(worker: WorkerProcess, line: str) -> None:
    async with asyncio.timeout(120):
        while line not in worker.tail():
            await asyncio.sleep(0.2)


async def test_an_arm_is_the_users_and_the_command_compares_the_arms(
    worker: WorkerProcess, client: Client, tmp_path: Path
) -> None:
    arms, asked = set(), 0
    while arms != {"default", "small"}:
        user, asked = client.user(), asked + 1
        for _ in range(2):
            await client.asked(user, LONG, tenant="lab", max_tokens=2)
        turns = await client.turns_of(user, 2)
        assert len({turn.arm for turn in turns}) == 1
        assert {(turn.route, turn.experiment) for turn in turns} == {("tone-test", "tone")}
        assert {turn.model_version for turn in turns} == {"paced@1" if turns[0].arm == "default" else "small@1"}
        arms.add(turns[0].arm)
    ended = await Terminal(worker.settings, tmp_path).run("experiment", "tone", "--json")
    default, small = json.loads(ended.out)
    assert (default["arm"], small["arm"]) == ("default", "small")
    assert (default["users"] + small["users"], default["requests"] + small["requests"]) == (asked, 2 * asked)
    assert default["errors"]["value"] == small["errors"]["value"] == 0
    assert small["first_token_p95_ms"]["high"] >= small["first_token_p50_ms"]["value"]
    shown = await Terminal(worker.settings, tmp_path).run("experiment", "tone")
    assert "first token p50 ms" in shown.out
    none = await Terminal(worker.settings, tmp_path).run("experiment", "other")
    assert "no requests of the experiment other" in none.err


async def under_load(client: Client, ask: Callable[[], Awaitable[list[Any]]]) -> list[Any]:
    """The notices of what is asked while the worker has a load: a first token of the last ten seconds."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            await client.asked(client.user(), LONG, max_tokens=2)
            if len(found := await ask()) > 1:
                return found


async def test_a_degraded_answer_says_so_to_readers_and_to_openais_clients(
    worker: WorkerProcess, client: Client, tmp_path: Path
) -> None:
    async def asked() -> list[tuple[str, Any]]:
        answer = await client.asked(client.user(), LONG, tenant="busy", max_tokens=2)
        return [(notice.code, notice.details) for notice in await notices(client, answer.request_id)]

    found = await under_load(client, asked)
    assert found[1] == ("degraded", {"model": "small", "route": "relief"})
    settings = worker.settings.model_copy(update={"gateway_api_keys": "key-of-nina-0123=busy/nina"})
    with GatewayProcess(settings, tmp_path / "gateway.log") as gateway:
        async with AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key="key-of-nina-0123", max_retries=0) as openai:
            given = {"model": "auto", "messages": [{"role": "user", "content": LONG}], "max_tokens": 3}

            async def whole() -> list[str]:
                done = await openai.chat.completions.create(**given)
                return ["plan", *done.parley.get("notices", [])]

            async def streamed() -> list[str]:
                chunks = [chunk async for chunk in await openai.chat.completions.create(**given, stream=True)]
                return ["plan", *chunks[-1].parley.get("notices", [])]

            for ask in (whole, streamed):
                assert await under_load(client, ask) == ["plan", "degraded"]
            assert {"small", "auto"} <= {model.id async for model in openai.models.list()}


async def route_of(client: Client) -> str | None:
    """The route that a request of acme's takes now."""
    user = client.user()
    await client.asked(user, LONG, max_tokens=1, tenant="acme")
    return (await client.turns_of(user, 1))[0].route


async def until(client: Client, route: str | None) -> None:
    async with asyncio.timeout(120):
        while await route_of(client) != route:
            await asyncio.sleep(0.2)


async def test_a_changed_file_decides_at_once_and_a_broken_one_not_at_all(
    worker: WorkerProcess, client: Client, policy: Path
) -> None:
    policy.write_text(MODELS)
    await until(client, None)
    policy.write_text(MODELS + '[[routes]]\nname = "all"\nmodel = "small"\n')
    await until(client, "all")
    policy.write_text(MODELS + '[[routes]]\nname = "other"\nmodel = "unknown"\n')
    await logged(worker, "there is no model 'unknown'; there are default, small; the policy before stays in force")
    assert await route_of(client) == "all"


async def test_an_answer_goes_on_with_the_model_that_was_decided_whatever_the_policy_says_now(
    worker: WorkerProcess, client: Client, policy: Path
) -> None:
    await until(client, "acme's")
    user = client.user()
    request_id = await client.ask(user, LONG, tenant="acme", max_tokens=600)
    await client.begun(user, request_id, 5)
    worker.kill()
    policy.write_text(MODELS + '[[routes]]\nname = "all"\nmodel = "default"\n')
    worker.start()
    answer = await client.answer(user, request_id)
    (turn,) = await client.turns_of(user, 1)
    assert (answer.end.finish_reason, len(answer.tokens)) == ("length", 600)
    assert {segment.model_version for segment in answer.segments} == {"small@1"}
    assert (turn.route, turn.model_version) == ("acme's", "small@1")
