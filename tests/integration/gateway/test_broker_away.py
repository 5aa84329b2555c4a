"""The broker goes and comes back; the gateway stays."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import httpx

from app.kafka.topics import create_topics
from app.local.kafka import KafkaCluster
from app.settings import Settings
from app.wire.request import DEFAULT_CONVERSATION
from tests.integration.gateway.events import answer
from tests.integration.gateway.gateway_process import GatewayProcess
from tests.integration.scripted_worker import scripted_worker

OTHER = "omar"


async def test_who_asks_is_told_soon_and_a_reader_waits_through_it_and_gets_the_whole_answer(
    start_kafka: Callable[..., KafkaCluster], tmp_path: Path
) -> None:
    kafka = await asyncio.to_thread(start_kafka)
    settings = Settings(_env_file=None, broker=kafka.broker_setting, partitions=2)
    await create_topics(settings)
    with GatewayProcess(settings, tmp_path / "gateway.log") as gateway:
        async with httpx.AsyncClient(base_url=gateway.url, timeout=90) as http:
            request_id = (await http.post("/v1/requests", json={"prompt": "one two three"})).json()["request_id"]
            reading = asyncio.create_task(answer(http, request_id))
            async with asyncio.timeout(120):
                while "parley_gateway_streams 1.0" not in (await http.get("/metrics")).text:
                    await asyncio.sleep(0.05)
            await asyncio.to_thread(kafka.stop)
            assert (await http.get("/readyz")).status_code == 503
            assert (await http.get("/healthz")).status_code == 200
            # Of another partition: the scripted worker answers side by side, and its fences cut each other off.
            other = {"user_id": OTHER}
            late = {"prompt": "hang", "request_id": "late"}
            chat = {"messages": [{"role": "user", "content": "hang"}]}
            refused = await asyncio.gather(
                http.post("/v1/requests", json=late, params=other, timeout=180),
                http.post("/v1/chat/completions", json=chat, params=other, timeout=180),
                http.delete(f"/v1/requests/{request_id}-other", params=other, timeout=180),
            )
            for reply in refused:
                assert (reply.status_code, reply.json()["error"]["code"]) == (503, "unavailable")
                assert int(reply.headers["retry-after"]) > 0
            assert "request_id late" in refused[0].json()["error"]["message"]
            await asyncio.to_thread(kafka.start)
            async with scripted_worker(settings) as worker, asyncio.timeout(120):
                sent = await reading
                assert [one.event.get("text") for one in sent if one.event["type"] == "token"] == [
                    "one ",
                    "two ",
                    "three ",
                ]
                assert sent[-1].event["type"] == "done"
                reported = (await http.get(f"/v1/requests/{request_id}")).json()
                assert (reported["text"], reported["conversation_id"]) == ("one two three ", DEFAULT_CONVERSATION)
                while (await http.get("/readyz")).status_code != 200:
                    await asyncio.sleep(0.1)
                while (await http.post("/v1/requests", json=late, params=other)).status_code != 202:
                    await asyncio.sleep(0.1)
                while "late" not in [request.request_id for request in worker.requests]:
                    await asyncio.sleep(0.1)
        assert gateway.stop() == 0
