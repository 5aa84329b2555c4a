"""One answer whose trace has all there is: a gateway, a worker, an approved tool, a child and what the model writes."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
from parley_client.agents import AgentRequest, Agents, Step

from app.commands.approvals import decided_by, waiting
from app.local.kafka import KafkaCluster
from app.settings import Settings
from app.wire.control import Decide
from tests.faults.worker_process import WorkerProcess
from tests.integration.gateway.gateway_process import GatewayProcess
from tests.integration.worker.client import Client
from tests.integration.worker.conftest import module_settings
from tests.integration.worker.test_tools_over_kafka import calls_of, result

TRACE = "0af7651916cd43dd8448eb211c80319c"
TRACEPARENT = f"00-{TRACE}-b7ad6b7169203331-01"
POLICY = """
[waits]
[tools.look_up]
approve = { by = "desk", within_s = 600 }
[agents.helper]
system = "Help."
[agents.desk]
program = true
within_s = 600
"""
USER, REQUEST = "ann", "traced"

agents = Agents()


@agents.agent("desk")
async def desk(step: Step, request: AgentRequest) -> None:
    found = await step.call("look_up", {"word": request.prompt})
    helped = await step.ask("helper", found)
    await step.answer(helped, max_tokens=4)


def traced(folder: Path, endpoint: str) -> None:
    """The answer, from an own Kafka to its end, with all spans sent to the endpoint."""
    policy = folder / "policy.toml"
    policy.write_text(POLICY)
    with _environment(OTEL_EXPORTER_OTLP_ENDPOINT=endpoint, OTEL_BSP_SCHEDULE_DELAY="200"), _kafka(folder) as kafka:
        settings = module_settings(kafka, folder, traces="otlp", traces_sample=1.0, partitions=1, policy=policy)
        with WorkerProcess(settings, folder / "worker.log") as worker:
            worker.wait_owning(1)
            with GatewayProcess(settings, folder / "gateway.log") as gateway:
                asyncio.run(_answered(settings, gateway.url))
                gateway.stop()
            worker.stop()


async def _answered(settings: Settings, gateway: str) -> None:
    program = asyncio.create_task(agents.serve(settings.broker.removeprefix("kafka://"), prefix=settings.topic_prefix))
    body = {"prompt": "tell me", "agent": "desk", "max_tokens": 4, "request_id": REQUEST}
    async with httpx.AsyncClient(base_url=gateway) as http, Client(settings) as client:
        headers = {"traceparent": TRACEPARENT}
        (await http.post("/v1/requests", json=body, params={"user_id": USER}, headers=headers)).raise_for_status()
        async with asyncio.timeout(120):
            while not (asked := await waiting(settings)):
                await asyncio.sleep(0.1)
            of: dict[str, Any] = {"request_id": REQUEST, "user_id": USER, "wait_id": asked[0][1].wait_id}
            decision = Decide(**of, decision="approved", by="desk/ali")
            while await decided_by(settings, decision, asked[0][0].since) is None:
                await asyncio.sleep(0.1)
            call = next(one for one in await calls_of(client, USER, 2) if one.name == "look_up")
            await result(client, call, "found")
            await client.answer(USER, REQUEST)
    program.cancel()
    with suppress(asyncio.CancelledError):
        await program


@contextmanager
def _environment(**variables: str) -> Iterator[None]:
    os.environ.update(variables)
    try:
        yield
    finally:
        for name in variables:
            del os.environ[name]


@contextmanager
def _kafka(folder: Path) -> Iterator[KafkaCluster]:
    cluster = KafkaCluster(folder / "kafka")
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.kill()
