"""Small writes leave at once on every connection that is accepted: otherwise the first tokens of an answer wait, on a
connection that the client keeps, for its delayed acknowledgement of the reply's head.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import httpx
import pytest
import trustme

from app.settings import Settings
from tests.faults.worker_process import WorkerProcess
from tests.integration.gateway.accepted_sockets import delays_small_writes
from tests.integration.gateway.gateway_process import GatewayProcess
from tests.integration.gateway.test_socket import opened
from tests.integration.gateway.test_tls import KEY, files_of, trusting
from tests.integration.gateway.test_tls import gateway as gateway_with_keys

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux's pidfd_getfd")

_CHAT = {"messages": [{"role": "user", "content": "hi"}], "stream": True, "max_tokens": 4}


async def test_streams_and_websockets_are_sent_at_once(gateway: GatewayProcess, http: httpx.AsyncClient) -> None:
    port = gateway.settings.gateway_port
    async with http.stream("POST", "/v1/chat/completions", json=_CHAT) as reply:
        assert delays_small_writes(port) == [False]
        await reply.aread()
    async with opened(gateway) as socket:
        await socket.send(json.dumps({"type": "ask", "prompt": "hi", "max_tokens": 4}))
        await socket.recv()
        assert set(delays_small_writes(port)) == {False}


async def test_connections_with_tls_and_those_of_operators_are_sent_at_once(settings: Settings, tmp_path: Path) -> None:
    ca = trustme.CA()
    with gateway_with_keys(settings, tmp_path, **files_of(ca, tmp_path, "parley")) as address:
        async with httpx.AsyncClient(
            verify=trusting(ca), headers={"Authorization": f"Bearer {KEY}"}, timeout=60
        ) as http:
            assert (await http.get(f"{address}/v1/models")).status_code == 200
            assert delays_small_writes(int(address.rpartition(":")[2])) == [False]


async def test_the_workers_views_are_sent_at_once(worker: WorkerProcess) -> None:
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{worker.web_port}", timeout=60) as http:
        await http.get("/healthz")
        assert delays_small_writes(worker.web_port) == [False]
