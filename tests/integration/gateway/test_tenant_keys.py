"""A program with one key for all its users, as Open WebUI: headers name them. And the models that it can choose."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import httpx
import openai
import pytest
from openai import AsyncOpenAI

from tests.faults.worker_process import WorkerProcess
from tests.integration.gateway.gateway_process import GatewayProcess

TENANT, NINA = "key-of-a-tenant-01", "key-of-nina-0123"
USER, CHAT = "X-OpenWebUI-User-Id", "X-OpenWebUI-Chat-Id"
HELLO = [{"role": "user", "content": "hello"}]


@pytest.fixture(scope="module")
def gateway(worker: WorkerProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    """With a model of its own in its settings, which no worker serves."""
    own = {
        "gateway_api_keys": f"{TENANT}=acme/*,{NINA}=nina",
        "gateway_user_header": USER,
        "gateway_conversation_header": CHAT,
        "gateway_tenant_user": "shared",
        "model": "/srv/models/secret-merger",
    }
    settings = worker.settings.model_copy(update=own)
    with GatewayProcess(settings, tmp_path_factory.mktemp("gateway") / "gateway.log") as gateway:
        yield gateway
        assert gateway.stop() == 0


@pytest.fixture
async def client(gateway: GatewayProcess) -> AsyncIterator[AsyncOpenAI]:
    async with AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key=TENANT, max_retries=0) as client:
        yield client


async def turns(gateway: GatewayProcess, key: str, conversation: str, **headers: str) -> list[str]:
    async with httpx.AsyncClient(
        base_url=gateway.url, headers={"authorization": f"Bearer {key}", **headers}, timeout=60
    ) as http:
        found = (await http.get(f"/v1/conversations/{conversation}")).raise_for_status().json()
        return [turn["prompt"] for turn in found["turns"]]


async def test_two_users_of_one_key_do_not_see_each_other(client: AsyncOpenAI, gateway: GatewayProcess) -> None:
    for user, prompt in (("lena", "I am Lena"), ("omar", "I am Omar")):
        await client.chat.completions.create(
            model="demo",
            messages=[{"role": "user", "content": prompt}],
            max_tokens=3,
            extra_headers={USER: user, CHAT: "chat-1"},
        )
    assert await turns(gateway, TENANT, "chat-1", **{USER: "lena"}) == ["I am Lena"]
    assert await turns(gateway, TENANT, "chat-1", **{USER: "omar"}) == ["I am Omar"]
    assert await turns(gateway, TENANT, "chat-1") == [], "those of the user of the settings"
    assert await turns(gateway, NINA, "chat-1", **{USER: "lena"}) == [], "a user's own key reads no header"


async def test_a_body_cannot_be_another_users_than_the_header_says(client: AsyncOpenAI) -> None:
    with pytest.raises(openai.PermissionDeniedError):
        await client.chat.completions.create(
            model="demo", messages=HELLO, extra_body={"user_id": "omar"}, extra_headers={USER: "lena"}
        )


async def test_every_way_to_ask_takes_the_user_and_the_conversation_from_headers(gateway: GatewayProcess) -> None:
    headers = {"authorization": f"Bearer {TENANT}", USER: "ways", CHAT: "chat-2"}
    async with httpx.AsyncClient(base_url=gateway.url, headers=headers, timeout=60) as http:
        body = {"prompt": "one", "max_tokens": 2}
        asked = (await http.post("/v1/requests", json=body)).raise_for_status().json()
        assert (asked["user_id"], asked["conversation_id"]) == ("ways", "chat-2")
        asked = (await http.post("/v1/requests", json={**body, "conversation_id": "own"})).raise_for_status().json()
        assert asked["conversation_id"] == "own"
        events = (await http.get("/v1/chat", params={"prompt": "two", "max_tokens": 2})).raise_for_status().text
        assert '"conversation_id":"chat-2"' in events
        body = {"input": "three", "max_output_tokens": 2}
        response = (await http.post("/v1/responses", json=body)).raise_for_status().json()
        assert response["conversation"] is None, "its input is its context, whatever the conversation is"
    assert await turns(gateway, TENANT, "chat-2", **{USER: "ways"}) == ["one", "two"]


async def test_without_the_header_the_user_of_the_settings_asks(client: AsyncOpenAI, gateway: GatewayProcess) -> None:
    done = await client.chat.completions.create(
        model="demo", messages=HELLO, max_tokens=2, extra_body={"conversation_id": "of all"}
    )
    assert done.usage.completion_tokens == 2
    assert await turns(gateway, TENANT, "of all") == ["hello"]


async def test_the_models_are_those_of_the_worker_and_no_refusal_names_a_folder(
    client: AsyncOpenAI, worker: WorkerProcess
) -> None:
    assert [model.id async for model in client.models.list()] == [worker.settings.model]
    assert (await client.models.retrieve("demo")).id == "demo"
    for name in ("secret-merger", "other"):
        with pytest.raises(openai.NotFoundError) as refused:
            await client.models.retrieve(name)
        assert "srv" not in refused.value.message
    with pytest.raises(openai.NotFoundError) as refused:
        await client.chat.completions.create(model="other", messages=HELLO)
    assert refused.value.code == "model_not_found"
    assert "/" not in refused.value.message.partition("there are")[2]
