"""What the worker's web server tells of it."""

from __future__ import annotations

import json
import urllib.request

from tests.faults.worker_process import WorkerProcess
from tests.integration.worker.client import Client


def get(worker: WorkerProcess, path: str) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{worker.web_port}{path}", timeout=10) as response:
        return str(response.read().decode())


async def test_a_worker_that_owns_its_partitions_is_ready(client: Client, worker: WorkerProcess) -> None:
    await client.asked(client.user(), max_tokens=2)
    told = json.loads(get(worker, "/readyz"))
    assert told["status"] == "ok"
    assert len(told["partitions"]) == worker.settings.partitions


async def test_metrics_count_what_was_answered_and_refused_and_keep_users_out(
    client: Client, worker: WorkerProcess
) -> None:
    user = client.user()
    await client.asked(user, max_tokens=5)
    place = await client.send("requests", b"rubbish", user)
    await client.dead_letter("requests", *place)
    await client.turns_of(user, 1)
    told = get(worker, "/metrics")
    for name in (
        "parley:time_to_first_token_seconds_count",
        'parley:request_success_total{finished_reason="length"}',
        "parley:generation_tokens_total",
        'parley:dead_letters_total{cause="malformed",topic="requests"}',
        "parley:finish_seconds_count{",
        'parley:partition_owned{partition="0"} 1.0',
        "faust_messages_received_total",
    ):
        assert name in told, name
    assert user not in told
