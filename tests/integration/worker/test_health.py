"""What the worker's web server reports."""

from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.request
from typing import Any

import psutil
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.faults.worker_process import WorkerProcess
from tests.integration.worker.client import Client


def get(worker: WorkerProcess, path: str) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{worker.web_port}{path}", timeout=60) as response:
        return str(response.read().decode())


async def test_a_worker_that_owns_its_partitions_is_ready(client: Client, worker: WorkerProcess) -> None:
    await client.asked(client.user(), max_tokens=2)
    reported = json.loads(get(worker, "/readyz"))
    assert reported["status"] == "ok"
    assert len(reported["partitions"]) == worker.settings.partitions


async def test_only_health_and_metrics_are_served(worker: WorkerProcess) -> None:
    for path in ("/router/", "/table/", "/graph/", "/stats"):
        with pytest.raises(urllib.error.HTTPError) as refused:
            get(worker, path)
        refused.value.close()
        assert refused.value.code == 404, path
    bound = [one.laddr for one in psutil.Process(worker.pid).net_connections() if one.status == psutil.CONN_LISTEN]
    assert {(one.ip, one.port) for one in bound} == {("127.0.0.1", worker.web_port)}


async def test_metrics_count_what_was_answered_and_refused_and_keep_users_out(
    client: Client, worker: WorkerProcess
) -> None:
    user = client.user()
    await client.asked(user, max_tokens=5)
    place = await client.send("requests", b"rubbish", user)
    await client.dead_letter("requests", *place)
    await client.turns_of(user, 1)
    names = (
        "parley:time_to_first_token_seconds_count",
        'parley:request_success_total{finished_reason="length"}',
        "parley:generation_tokens_total",
        'parley:dead_letters_total{cause="malformed",topic="requests"}',
        "parley:commit_seconds_count{",
        'parley:partition_owned{partition="0"} 1.0',
    )
    async with asyncio.timeout(120):  # what has been committed is counted a moment later
        while [name for name in names if name not in (reported := get(worker, "/metrics"))]:
            await asyncio.sleep(0.2)
    assert "faust_" not in reported
    assert user not in reported


Series = dict[str, list[tuple[dict[str, str], float]]]


def series(worker: WorkerProcess) -> Series:
    found: Series = {}
    for family in text_string_to_metric_families(get(worker, "/metrics")):
        for sample in family.samples:
            found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found


def total(reported: Series, name: str, **labels: Any) -> float:
    return sum(value for named, value in reported[name] if labels.items() <= named.items())


async def test_metrics_show_partitions_engine_and_tenants(client: Client, worker: WorkerProcess) -> None:
    before = series(worker)
    users = [client.user() for _ in range(8)]
    asked = [(user, await client.ask(user, max_tokens=100_000, tenant="acme")) for user in users]
    for user, request in asked:
        await client.begun(user, request, 2)
    during = series(worker)
    assert total(during, "parley:num_requests_running") >= 8
    assert total(during, "parley:partition_in_flight") == 8
    async with asyncio.timeout(120):
        while total(series(worker), "parley:partition_lag_records", topic="requests") < 8:
            await asyncio.sleep(0.2)
    assert max(value for _, value in series(worker)["parley:partition_lag_seconds"]) > 0
    for user, request in asked:
        await client.begun(user, request, 100)
        await client.cancel(user, request)
    answers = [await client.answer(user, request) for user, request in asked]
    for user in users:
        await client.turns_of(user, 1)
    async with asyncio.timeout(120):
        while (after := series(worker)) and (  # a commit is known to readers before it is counted
            total(after, "parley:partition_lag_records", topic="requests") or total(after, "parley:partition_in_flight")
        ):
            await asyncio.sleep(0.2)
    gaps = total(after, "parley:inter_token_latency_seconds_count") - total(
        before, "parley:inter_token_latency_seconds_count"
    )
    assert gaps >= sum(len(answer.segments) - 1 for answer in answers), "one for each event but the first of an answer"
    written = sum(len(answer.tokens) for answer in answers)
    assert total(after, "parley:tokens_total", tenant="acme", kind="completion") == written
    assert total(after, "parley:table_bytes") > 0
    async with asyncio.timeout(120):  # a usage window may be on its way
        while total(series(worker), "parley:partition_commit_age_seconds"):
            await asyncio.sleep(0.1)
    assert total(after, "parley:broker_silent_seconds") < 60
    assert {labels["partition"] for labels, _ in after["parley:partition_epoch"]} == {"0", "1"}
    assert total(after, "parley:event_loop_lag_seconds_count") > 0
    assert total(after, "process_open_fds") > 0
