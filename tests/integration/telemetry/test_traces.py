"""One trace from an HTTP request over Kafka to the turn, made by a real gateway and a real worker."""

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

TRACE = "0af7651916cd43dd8448eb211c80319c"
TRACEPARENT = f"00-{TRACE}-b7ad6b7169203331-01"
NOT_SAMPLED = "00-1af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"
BEHIND = "2af7651916cd43dd8448eb211c80319c"

Span = dict[str, Any]


@pytest.fixture(scope="module")
def settings(kafka: KafkaCluster, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    folder = tmp_path_factory.mktemp("traces")
    return module_settings(kafka, folder, traces="console", traces_sample=1.0, log_format="json")


@pytest.fixture(scope="module")
def worker(settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkerProcess]:
    log = tmp_path_factory.mktemp("worker") / "worker.log"
    with WorkerProcess(settings, log, OTEL_BSP_SCHEDULE_DELAY="100") as process:
        process.wait_owning(settings.partitions)
        yield process


def lines(log: Path) -> list[dict[str, Any]]:
    """The lines of a log that are JSON, spans among them; a worker that was killed may have left half of one."""
    whole, _, _ = log.read_text(errors="replace").rpartition("\n")
    return [json.loads(line) for line in whole.splitlines() if line[:1] + line[-1:] == "{}"]


def spans(*logs: Path) -> list[Span]:
    return [line for log in logs for line in lines(log) if "context" in line]


def all_of(trace: str, *logs: Path) -> list[Span]:
    return [span for span in spans(*logs) if span["context"]["trace_id"] == f"0x{trace}"]


async def spans_of(trace: str, last: str, *logs: Path) -> dict[str, Span]:
    """The spans of a trace by their names' first words, once there is the `last`."""
    async with asyncio.timeout(120):
        while True:
            found = {span["name"].split()[0]: span for span in all_of(trace, *logs)}
            if last in found:
                return found
            await asyncio.sleep(0.1)


async def test_one_trace_shows_the_whole_way_of_a_request(worker: WorkerProcess, tmp_path: Path) -> None:
    with GatewayProcess(worker.settings, tmp_path / "gateway.log") as gateway:
        body = {"prompt": "tell me", "max_tokens": 3, "request_id": "traced", "temperature": 0.5}
        headers = {"traceparent": TRACEPARENT}
        posted = httpx.post(f"{gateway.url}/v1/requests?user_id=ann", json=body, headers=headers, timeout=60)
        posted.raise_for_status()
        async with Client(worker.settings) as client:
            await client.answer("ann", "traced")
        gateway.stop()
        found = await spans_of(TRACE, "process", worker.log, gateway.log)
    chat, process, post = found["chat"], found["process"], found["POST"]
    assert post["name"] == "POST /v1/requests"
    assert post["parent_id"] == "0xb7ad6b7169203331"
    assert process["parent_id"] == post["context"]["span_id"]
    way = ["queue", "wait", "batch", "schedule", "prefill", "decode", "commit"]
    above = {name: chat if name in {"batch", "schedule", "prefill", "decode"} else process for name in (*way, "chat")}
    above["chat"] = process
    assert all(found[name]["parent_id"] == above[name]["context"]["span_id"] for name in above)
    assert (chat["kind"], process["kind"]) == ("SpanKind.INTERNAL", "SpanKind.CONSUMER")
    times = [time for name in way for time in (found[name]["start_time"], found[name]["end_time"])]
    assert times == sorted(times)
    assert (process["start_time"], process["end_time"]) == (times[0], times[-1])
    assert [event["name"] for event in process["events"]] == ["first token"]
    reported = chat["attributes"]
    assert reported["gen_ai.operation.name"] == "chat"
    assert reported["gen_ai.request.max_tokens"] == 3
    assert reported["gen_ai.request.temperature"] == 0.5
    assert reported["gen_ai.usage.output_tokens"] == 3
    assert reported["gen_ai.response.finish_reasons"] == ["length"]
    assert process["attributes"]["messaging.destination.name"] == worker.settings.topic("requests")


async def test_the_context_is_in_the_headers_of_every_token_event_and_of_the_turn(worker: WorkerProcess) -> None:
    async with Client(worker.settings) as client:
        user = client.user()
        request = {"request_id": "headed", "user_id": user, "prompt": "hi", "max_tokens": 3}
        await client.send("requests", request, user, headers=[("traceparent", TRACEPARENT.encode())])
        await client.answer(user, "headed")
        (turn,) = await client.turns_of(user, 1)
        assert turn.request_id == "headed"
        records = [*await client.records("tokens"), *await client.records("turns")]
        of_request = [record for record in records if record.key == user.encode()]
        assert {worker.settings.topic(name) for name in ("tokens", "turns")} == {one.topic for one in of_request}
        carried = {dict(record.headers)["traceparent"] for record in of_request}
    assert len(carried) == 1
    trace, span = carried.pop().decode().split("-")[1:3]
    assert trace == TRACE
    assert span != "b7ad6b7169203331", "the worker's own span is the parent of what comes next"


async def test_a_request_that_is_not_sampled_leaves_no_span_and_no_header_of_its_own(worker: WorkerProcess) -> None:
    async with Client(worker.settings) as client:
        user = client.user()
        request = {"request_id": "plain", "user_id": user, "prompt": "hi", "max_tokens": 2}
        await client.send("requests", request, user, headers=[("traceparent", NOT_SAMPLED.encode())])
        await client.answer(user, "plain")
        await client.turns_of(user, 1)
        headers = [dict(record.headers) for record in await client.records("tokens") if record.key == user.encode()]
        sampled = [("traceparent", f"00-{BEHIND}-b7ad6b7169203331-01".encode())]
        await client.send("requests", {**request, "user_id": (other := client.user())}, other, headers=sampled)
        await spans_of(BEHIND, "process", worker.log)
    assert {one.get("traceparent") for one in headers} == {NOT_SAMPLED.encode()}
    assert user not in {span["attributes"].get("user.id") for span in spans(worker.log)}


async def test_each_ended_request_is_one_line_with_its_ids_and_times_and_without_its_words(
    worker: WorkerProcess,
) -> None:
    marker = "xyzzy-a-text-of-its-own"
    async with Client(worker.settings) as client:
        user = client.user()
        bad = {"request_id": "bad", "user_id": user, "prompt": marker, "seed": "x"}
        await client.dead_letter("requests", *await client.send("requests", bad, user))
        long = {"request_id": "long", "user_id": user, "prompt": marker * 10_000}
        await client.send("requests", long, user)
        answer = await client.asked(user, marker, max_tokens=2)
        await client.turns_of(user, 1)
    async with asyncio.timeout(120):
        while not (ended := [line for line in lines(worker.log) if line.get("request_id") == answer.request_id]):
            await asyncio.sleep(0.1)
    (line,) = ended
    assert line["message"] == "request ended"
    assert (line["level"], line["logger"]) == ("info", "parley.requests")
    assert (line["user_id"], line["completion_tokens"], line["end"]) == (user, 2, "length")
    order = [line[name] for name in ("taken_ms", "batched_ms", "engine_ms", "first_token_ms", "end_ms")]
    assert order == sorted(order)
    codes = {one["request_id"]: one["error"] for one in lines(worker.log) if one.get("message") == "request refused"}
    assert codes == {"bad": "invalid_request", "long": "prompt_too_long"}
    text = worker.log.read_text()
    assert marker not in text
    assert answer.text.strip() not in text
    after_banner = text[text.index("{") :]
    assert [line for line in after_banner.splitlines() if not line.startswith("{")] == [], "every line is an object"
