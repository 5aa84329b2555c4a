"""Approvals over HTTP, with two gateways that share the partitions, and desks of two tenants."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.local.kafka import KafkaCluster
from app.settings import Settings
from tests.faults.worker_process import WorkerProcess
from tests.integration.gateway.gateway_process import GatewayProcess
from tests.integration.worker.client import Client
from tests.integration.worker.conftest import module_settings
from tests.integration.worker.test_tools_over_kafka import calls_of, result

POLICY = '[waits]\n[tools.look_up]\napprove = {{ by = "{by}", within_s = 600 }}\n'
PARAMETERS = {"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]}
TOOLS = [{"type": "function", "function": {"name": "look_up", "parameters": PARAMETERS}}]
NINA, OMAR, BACKEND, DESK, OTHER, RIVAL = KEYS = tuple(
    f"key-of-{name}-0123456789" for name in ("nina", "omar", "backend", "desk", "other", "rival")
)
DESKS = ("acme/*#approver:desk", "acme/eve#approver:other", "rival/*#approver:desk")
OWNERS = ("acme/nina", "acme/omar", "acme/*", *DESKS)
PATIENCE_S = 120
SECRET = "a secret that both of the gateways know"
ROUTE = "app.gateway.asking.routes.approvals."
PATIENT = {
    "app.gateway.answers.approvals._CURRENT_S": 60.0,
    ROUTE + "_DECIDED_S": 60.0,
    ROUTE + "_MOST_WAIT_S": 600,
}
"""A wait ends by what it waits for."""
Gateways = tuple[GatewayProcess, GatewayProcess]


def settings_of(kafka: KafkaCluster, folder: Path, by: str) -> Settings:
    policy = folder / "policy.toml"
    policy.write_text(POLICY.format(by=by))
    keys = ",".join(f"{key}={owner}" for key, owner in zip(KEYS, OWNERS, strict=True))
    (folder / "tools.json").write_text(json.dumps(TOOLS))
    own: dict[str, Any] = {"gateway_tools": folder / "tools.json"}
    own |= {"gateway_api_keys": keys, "gateway_requests_per_min": 0, "gateway_peer_secret": SECRET}
    return module_settings(kafka, folder, policy=policy, **own)


@pytest.fixture(scope="module")
def gateways(kafka: KafkaCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateways]:
    folder = tmp_path_factory.mktemp("approvals")
    settings = settings_of(kafka, folder, "desk")
    with WorkerProcess(settings, folder / "worker.log") as worker:
        worker.wait_owning(settings.partitions)
        logs = (folder / "one.log", folder / "two.log")
        one, two = (GatewayProcess(settings, log, is_shared=True, constants=PATIENT) for log in logs)
        with one, two:
            yield one, two
            assert (one.stop(), two.stop()) == (0, 0)


def http(gateway: GatewayProcess, key: str, **query: str) -> httpx.AsyncClient:
    headers = {"Authorization": f"Bearer {key}"}
    return httpx.AsyncClient(base_url=gateway.url, headers=headers, params=query, timeout=PATIENCE_S)


async def asked(*gateways: GatewayProcess, request_id: str, user: str = "nina", by: str = "desk") -> dict[str, Any]:
    """Ask the first one, and wait until each of them lists the call of the answer."""
    tools = {"tools": TOOLS, "tool_mode": "kafka"}
    body = {"request_id": request_id, "prompt": "hello", "max_tokens": 1, **tools}
    async with http(gateways[0], BACKEND, user_id=user) as backend:
        reply = await backend.post("/v1/requests", json=body)
        assert reply.status_code == 202, reply.text
    (found, *others) = [await listed(one, request_id, user, by) for one in gateways]
    assert all(other == found for other in others)
    return found


async def listed(gateway: GatewayProcess, request_id: str, user: str, by: str) -> dict[str, Any]:
    key, query = (BACKEND, {"user_id": user}) if by == "user" else (DESK, {})
    async with http(gateway, key, **query) as reader, asyncio.timeout(PATIENCE_S):
        while True:
            shown = (await reader.get("/v1/approvals", params={**query, "by": by})).json()["approvals"]
            if found := [one for one in shown if one["request_id"] == request_id]:
                return dict(found[0])
            await asyncio.sleep(0.1)


def path(one: dict[str, Any]) -> str:
    return f"/v1/approvals/{one['user_id']}/{one['request_id']}/{one['wait_id']}"


async def test_a_decision_at_either_gateway_counts_once_and_is_known_at_both(gateways: Gateways) -> None:
    one = await asked(*gateways, request_id="twice")
    assert (one["user_id"], one["name"], one["by"]) == ("acme/nina", "look_up", "desk")
    assert one["parameters"] == PARAMETERS
    edited = {"decision": "edited", "arguments": {"word": "other"}}
    async with http(gateways[0], DESK, user_id="ali") as ali, http(gateways[1], DESK, user_id="bob") as bob:
        seen = (await bob.get("/v1/approvals")).json()
        assert [each["wait_id"] for each in seen["approvals"]] == [one["wait_id"]]
        assert seen["you"] == {"name": "bob", "desks": ["desk"], "may_name": True}
        wait = {"version": seen["version"], "wait_s": 600}  # longer than its client waits: it comes with the news
        waiting = asyncio.create_task(bob.get("/v1/approvals", params=wait))
        decided = await asyncio.gather(
            ali.post(path(one), json=edited), bob.post(path(one), json={"decision": "rejected", "reason": "no"})
        )
        assert [reply.status_code for reply in decided] == [200, 200]
        first, second = (reply.json() for reply in decided)
        assert sorted([first.pop("counted"), second.pop("counted")]) == [False, True]
        assert first == second, "both say which one counts"
        news = (await waiting).json()
        assert news["approvals"] == []
        assert [(each["decision"], each["by"]) for each in news["decided"]] == [(first["decision"], first["by"])]
        for each in (ali, bob):  # a repeat, by whom it was or another one
            reply = await each.post(path(one), json={"decision": "approved"})
            assert (reply.status_code, reply.json()) == (200, {**first, "counted": False})
    async with Client(gateways[0].settings) as client:
        if first["decision"] == "edited":
            (call,) = await calls_of(client, "acme/nina")
            assert json.loads(call.arguments) == {"word": "other"}
            await result(client, call, "packed")
    async with http(gateways[1], NINA) as nina, asyncio.timeout(PATIENCE_S):
        while (await nina.get("/v1/requests/twice")).json()["status"] != "done":
            await asyncio.sleep(0.1)


async def test_who_may_not_decide_gets_403_and_nothing_happens(gateways: Gateways) -> None:
    one = await asked(*gateways, request_id="guarded")
    approved = {"decision": "approved"}
    for key in (NINA, OMAR, BACKEND, OTHER, RIVAL):
        async with http(gateways[1], key) as caller:
            reply = await caller.post(path(one), json=approved)
            assert reply.status_code == 403, (key, reply.text)
    for key, status, count in ((NINA, 403, 0), (BACKEND, 403, 0), (OTHER, 200, 0), (RIVAL, 200, 0), (DESK, 200, 1)):
        async with http(gateways[1], key) as caller:
            reply = await caller.get("/v1/approvals")
            assert reply.status_code == status
            assert len(reply.json().get("approvals", [])) == count
    async with http(gateways[1], OTHER) as caller:
        assert (await caller.get("/v1/approvals", params={"by": "desk"})).status_code == 403
    async with http(gateways[1], DESK) as desk:
        decided = (await desk.post(path(one), json={"decision": "rejected"})).json()
        assert (decided["decision"], decided["by"], decided["counted"]) == ("rejected", "desk/acme", True)
        assert (await desk.get("/v1/approvals")).json()["approvals"] == []
    async with http(gateways[1], RIVAL) as rival:
        assert (await rival.post(path(one), json=approved)).status_code == 403
        assert (await rival.get("/v1/approvals")).json()["decided"] == []
    async with http(gateways[1], OTHER) as other:
        assert (await other.post(path(one), json=approved)).status_code == 403


async def test_odd_names_and_bodies_are_refused(gateways: Gateways) -> None:
    one = await asked(*gateways, request_id="hostile")
    async with http(gateways[1], DESK) as desk:

        async def refused(where: str, body: Any, status: int) -> None:
            reply = await desk.post(where, json=body)
            assert reply.status_code == status, (where[:80], reply.text)
            assert len(reply.text) < 1000

        own, approved = path(one), {"decision": "approved"}
        for wait_id in ("call_", "%00", "%0a", "a" * 5000, "%F0%9F%98%80", "..%2e", '"]', f"{one['wait_id']}x"):
            await refused(own.replace(one["wait_id"], wait_id), approved, 404)
        await refused(own.replace("/hostile/", "/nothing/"), approved, 404)
        await refused(own.replace("/hostile/", f"/{'r' * 5000}/"), approved, 404)
        await refused(own.replace("acme/nina", "acme/nobody"), approved, 404)
        await refused(own.replace("acme/nina", "rival/nina"), approved, 403)
        for body, status in (
            ({"decision": "maybe"}, 400),
            ({}, 400),
            ([], 400),
            ({"decision": "approved", "arguments": "{}"}, 400),
            ({"decision": "approved", "reason": "why"}, 400),
            ({"decision": "edited"}, 400),
            ({"decision": "rejected", "reason": "r" * 5000}, 400),
            ({"decision": "edited", "arguments": "{"}, 422),
            ({"decision": "edited", "arguments": "[1]"}, 422),
            ({"decision": "edited", "arguments": {"word": 7}}, 422),
            ({"decision": "edited", "arguments": {"word": "a" * 300_000}}, 422),
            ({"decision": "edited", "arguments": {"word": "a" * 2_000_000}}, 413),
        ):
            await refused(own, body, status)
        assert (await desk.post(own, content=b"decision=approved")).status_code == 415
        assert [each["request_id"] for each in (await desk.get("/v1/approvals")).json()["approvals"]] == ["hostile"]
        for wait_s in ("nan", "inf", "1e9", "-", "1.5"):
            query = {"version": (await desk.get("/v1/approvals")).json()["version"], "wait_s": wait_s}
            assert (await desk.get("/v1/approvals", params=query)).status_code == 400
        short = own.replace("acme/nina", "nina")  # as a tenant's key names its user elsewhere
        assert (await desk.post(short, json={"decision": "rejected"})).json()["counted"]


async def test_what_is_cancelled_or_erased_waits_no_longer(gateways: Gateways) -> None:
    cancelled = await asked(*gateways, request_id="cancelled")
    erased = await asked(*gateways, request_id="erased", user="omar")
    async with http(gateways[0], NINA) as nina, http(gateways[0], OMAR) as omar, http(gateways[1], DESK) as desk:
        seen = (await desk.get("/v1/approvals")).json()
        assert len(seen["approvals"]) == 2
        await nina.delete("/v1/requests/cancelled")
        await omar.delete("/v1/users/omar")
        async with asyncio.timeout(PATIENCE_S):
            while seen["approvals"]:
                query = {"version": seen["version"], "wait_s": 20}
                seen = (await desk.get("/v1/approvals", params=query)).json()
        assert not [one for one in seen["decided"] if one["request_id"] in {"cancelled", "erased"}]
        for one in (cancelled, erased):
            assert (await desk.post(path(one), json={"decision": "approved"})).status_code == 404


@pytest.fixture(scope="module")
def own_worker(kafka: KafkaCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkerProcess]:
    """One whose users decide themselves."""
    folder = tmp_path_factory.mktemp("own")
    with WorkerProcess(settings_of(kafka, folder, "user"), folder / "worker.log") as worker:
        worker.wait_owning(worker.settings.partitions)
        yield worker


@pytest.fixture(scope="module")
def own_gateway(own_worker: WorkerProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    log = tmp_path_factory.mktemp("own") / "gateway.log"
    constants = {**PATIENT, ROUTE + "_DECIDED_S": 10.0}
    with GatewayProcess(own_worker.settings, log, constants=constants) as gateway:
        yield gateway


async def test_a_user_decides_what_is_up_to_itself(own_gateway: GatewayProcess) -> None:
    one = await asked(own_gateway, request_id="own", by="user")
    for key, query in (
        (OMAR, {}),
        (DESK, {"user_id": "ali"}),
        (BACKEND, {"user_id": "omar"}),
        (RIVAL, {"user_id": "nina"}),
    ):
        async with http(own_gateway, key, **query) as other:
            assert (await other.post(path(one), json={"decision": "approved"})).status_code == 403
            assert (await other.get("/v1/approvals", params={**query, "by": "user"})).json()["approvals"] == []
    async with http(own_gateway, DESK) as desk:
        assert (await desk.get("/v1/approvals")).json()["approvals"] == []
    async with http(own_gateway, NINA) as nina:
        assert [each["request_id"] for each in (await nina.get("/v1/approvals?by=user")).json()["approvals"]] == ["own"]
        decided = (await nina.post(path(one), json={"decision": "rejected", "reason": "not now"})).json()
        assert decided == {"wait_id": one["wait_id"], "decision": "rejected", "by": "user/acme/nina", "counted": True}
        async with asyncio.timeout(PATIENCE_S):
            while (await nina.get("/v1/requests/own")).json()["status"] != "done":
                await asyncio.sleep(0.1)


async def test_without_a_worker_it_is_not_known_which_decision_counts(
    own_worker: WorkerProcess, own_gateway: GatewayProcess
) -> None:
    one = await asked(own_gateway, request_id="later", by="user")
    own_worker.kill()
    async with http(own_gateway, NINA) as nina:
        reply = await nina.post(path(one), json={"decision": "approved"})
        assert (reply.status_code, reply.json()) == (202, {"wait_id": one["wait_id"], "status": "sent"})
        await asyncio.to_thread(own_worker.start)
        async with asyncio.timeout(PATIENCE_S):
            while reply.status_code != 200:
                reply = await nina.post(path(one), json={"decision": "rejected"})
        assert (reply.json()["decision"], reply.json()["by"]) == ("approved", "user/acme/nina")
