"""Denied access and searches at a gateway are reported to the workers, and stand in the chains of `audit`."""

from __future__ import annotations

import asyncio
import math
import time
from pathlib import Path

import httpx
import jwt

from app.settings import Settings
from app.wire.audit import AuditRecord
from app.wire.codec import decode
from tests.faults.worker_process import WorkerProcess
from tests.integration.commands.terminal import Terminal
from tests.integration.gateway.gateway_process import GatewayProcess
from tests.integration.worker.client import Client

KEY = "the-key-of-nina-1"


async def reports(client: Client, count: int) -> list[AuditRecord]:
    async with asyncio.timeout(120):
        while True:
            records = await client.records("audit")
            found = [decode(AuditRecord, one.value, one.headers) for one in records]
            if sum(record.count for record in found) >= count:
                return found
            await asyncio.sleep(0.2)


async def test_who_is_refused_and_who_searches_is_audited(settings: Settings, tmp_path: Path) -> None:
    settings = settings.model_copy(update={"gateway_api_keys": f"{KEY}=acme/nina"})
    with (
        WorkerProcess(settings, tmp_path / "worker.log") as worker,
        GatewayProcess(settings, tmp_path / "gateway.log") as gateway,
    ):
        worker.wait_owning(settings.partitions)
        async with httpx.AsyncClient(base_url=gateway.url, timeout=60) as http, Client(settings) as client:
            nina, begun = {"Authorization": f"Bearer {KEY}"}, time.monotonic()
            for _ in range(30):
                wrong = await http.post("/v1/requests", json={"prompt": "x"}, headers={"Authorization": "Bearer guess"})
                assert wrong.status_code == 401
            assert (await http.delete("/v1/users/omar", headers=nina)).status_code == 403
            await http.get("/v1/search", params={"q": "where is my parcel"}, headers=nina)
            seconds = math.ceil(time.monotonic() - begun)
            found = await reports(client, 32)
            kinds = {(one.user_id, one.tenant, one.action.value, one.outcome) for one in found}
            assert kinds == {
                ("anonymous", None, "denied", "unauthorized"),
                ("acme/nina", "acme", "denied", "unauthorized"),
                ("acme/nina", "acme", "search", "done"),
            }
            assert sum(one.count for one in found) == 32
            assert len(found) <= 2 * (seconds + 3), "equal events of a second are one record"
            assert not any(b"parcel" in record.value for record in await client.records("audit"))
        verified = await Terminal(settings, tmp_path).run("audit", "verify")
        assert (verified.code, verified.out) == (0, "")
        assert gateway.stop() == 0


SECRET = "a secret of well over thirty-two bytes for tokens"


def bearer(**claims: object) -> dict[str, str]:
    token = jwt.encode({"sub": "ada", "exp": time.time() + 300, **claims}, SECRET, "HS256")
    return {"Authorization": f"Bearer {token}"}


async def test_an_admin_erases_users_of_its_own_tenant_and_others_are_refused(
    settings: Settings, tmp_path: Path
) -> None:
    settings = settings.model_copy(update={"jwt_secret": SECRET, "embedder": "none"})
    with (
        WorkerProcess(settings, tmp_path / "worker.log") as worker,
        GatewayProcess(settings, tmp_path / "gateway.log") as gateway,
    ):
        worker.wait_owning(settings.partitions)
        async with httpx.AsyncClient(base_url=gateway.url, timeout=60) as http, Client(settings) as client:
            for claims in ({"tenant": "acme"}, {"tenant": "acme", "parley_role": "auditor"}, {"parley_role": "user"}):
                assert (await http.delete("/v1/admin/users/acme/nina", headers=bearer(**claims))).status_code == 403
            admin = bearer(tenant="acme", parley_role="admin")
            for foreign in ("rival/omar", "omar", "/omar", "acme"):
                assert (await http.delete(f"/v1/admin/users/{foreign}", headers=admin)).status_code in {403, 404}
            assert (await http.get("/v1/admin/tenants/rival", headers=admin)).status_code == 403
            limits = (await http.get("/v1/admin/tenants/acme", headers=admin)).json()
            assert (limits["tenant"], limits["limits"]["priority"]) == ("acme", "interactive")

            await client.asked("acme/nina", "hello", max_tokens=1)
            assert (await http.delete("/v1/admin/users/acme/nina", headers=admin)).status_code == 202
            wanted = {
                ("acme/nina", "erasure", "done"),
                ("acme/ada", "admin", "erase acme/nina"),
                ("acme/ada", "denied", "unauthorized"),
            }
            async with asyncio.timeout(120):
                while True:
                    found = [
                        decode(AuditRecord, record.value, record.headers) for record in await client.records("audit")
                    ]
                    kinds = {(one.user_id, one.action.value, one.outcome) for one in found}
                    if wanted <= kinds:
                        break
                    await asyncio.sleep(0.2)
        assert gateway.stop() == 0
