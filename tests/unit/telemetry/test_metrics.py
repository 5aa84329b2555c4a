from __future__ import annotations

import math
import time
from types import SimpleNamespace
from typing import cast

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from app.audit.records import audit_of_erasure
from app.delivery.commits.commit import Commit
from app.delivery.record import REQUESTS, Outgoing, Record
from app.settings import Settings
from app.telemetry import metrics as metrics_module
from app.telemetry.collector import Gpu, engine_families, gpu_families
from app.telemetry.first_come import OTHER, FirstCome
from app.telemetry.metrics import Counts, WorkerMetrics, cause_of
from app.wire.codec import decode
from app.wire.dead_letters import cause_of as cause_at
from app.wire.dead_letters import dead_letter_headers
from app.wire.error import ErrorCode, WireError
from app.wire.event import DEGRADED, FALLBACK, NO_PLAN, ErrorInfo, EventType, Plan, TokenEvent
from app.wire.request import Request
from app.wire.validation import validate_request
from models.engine.runner import StepTimes
from models.interface.batcher import Flush, FlushReason
from models.interface.generation import Engine, EngineStats, FinishReason, StepRows, Usage
from tables.records import Table
from tests.unit.delivery.inflight_requests import ASKED_AT, inflight_of, outcome_of


def metrics() -> WorkerMetrics:
    return WorkerMetrics(CollectorRegistry(), Settings(_env_file=None))


def value(reported: WorkerMetrics, name: str, **labels: str) -> float:
    found = reported.registry.get_sample_value(name, labels)
    assert found is not None, f"{name}{labels} is not among\n{generate_latest(reported.registry).decode()}"
    return found


def answered(reported: WorkerMetrics, *, tenant: str | None = None, tokens: int = 3, plan: Plan = NO_PLAN) -> None:
    inflight = inflight_of(tenant=tenant)
    inflight.timeline.started = (ASKED_AT + 10) * 1_000_000
    inflight.timeline.admitted = (ASKED_AT + 20) * 1_000_000
    end = TokenEvent(
        type=EventType.DONE,
        model_version="m@1",
        finish_reason=FinishReason.STOP,
        usage=Usage(7, tokens, 4),
    )
    log = {"gaps": [0.02] * (tokens - 1), "first_at": ASKED_AT + 120, "ended_at": ASKED_AT + 200, "index": tokens}
    reported.answered(0, outcome_of(inflight, end, plan=plan, **log))


def test_an_answer_is_counted_under_the_names_of_vllm() -> None:
    reported = metrics()
    answered(reported)
    assert value(reported, "parley:time_to_first_token_seconds_sum") == pytest.approx(0.12)
    assert value(reported, "parley:request_queue_time_seconds_sum") == pytest.approx(0.02)
    assert value(reported, "parley:request_prefill_time_seconds_sum") == pytest.approx(0.1)
    assert value(reported, "parley:request_decode_time_seconds_sum") == pytest.approx(0.04)
    assert value(reported, "parley:request_inference_time_seconds_sum") == pytest.approx(0.14)
    assert value(reported, "parley:request_time_per_output_token_seconds_sum") == pytest.approx(0.02)
    assert value(reported, "parley:e2e_request_latency_seconds_sum") == pytest.approx(0.2)
    assert value(reported, "parley:inter_token_latency_seconds_count") == 2
    assert value(reported, "parley:prefix_cache_queries_total") == 7
    assert value(reported, "parley:prefix_cache_hits_total") == 4
    assert value(reported, "parley:request_success_total", finished_reason="stop") == 1


def test_tenants_beyond_the_first_share_one_series(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_module, "_TENANTS", 2)
    reported = metrics()
    for tenant in ("a", "b", "c", "d", "a"):
        answered(reported, tenant=tenant)
    counted = {
        tenant: value(reported, "parley:tokens_total", tenant=tenant, model="m@1", kind="completion")
        for tenant in ("a", "b", OTHER)
    }
    assert counted == {"a": 6, "b": 3, OTHER: 6}


@pytest.mark.parametrize(
    ("first_ms", "code", "result"),
    [
        (249, None, "good"),
        (251, None, "slow"),
        (None, ErrorCode.ENGINE_ERROR, "failed"),
        (None, ErrorCode.OVERLOADED, "failed"),
        (None, ErrorCode.PROMPT_TOO_LONG, "good"),
    ],
)
def test_a_request_is_counted_by_its_objective(first_ms: int | None, code: ErrorCode | None, result: str) -> None:
    reported, inflight = metrics(), inflight_of(tenant="acme")
    error = None if code is None else ErrorInfo(code, "it failed")
    end = TokenEvent(type=EventType.DONE if code is None else EventType.ERROR, error=error)
    first_at = None if first_ms is None else ASKED_AT + first_ms
    plan = Plan(route="small")
    reported.answered(0, outcome_of(inflight, end, plan=plan, gaps=[], first_at=first_at, ended_at=None, index=0))
    for name in ("good", "slow", "failed"):
        counted = value(reported, "parley:objective_requests_total", tenant="acme", route="small", result=name)
        assert counted == (name == result)


def test_a_label_that_users_choose_stays_bounded_in_number_and_length() -> None:
    label = FirstCome(3)
    assert {label(f"tenant {number}") for number in range(1000)} == {"tenant 0", "tenant 1", "tenant 2", OTHER}
    assert len(FirstCome(1)("x" * 10_000)) == 64


def test_time_over_the_budget_is_counted_and_time_within_it_is_not() -> None:
    reported = metrics()
    reported.batch_left(3, Flush(FlushReason.BUDGET, (0.004, 0.008, 0.010)))
    assert value(reported, "parley:batch_over_budget_seconds_total", partition="3") == pytest.approx(0.008)
    assert value(reported, "parley:batch_size_sum", partition="3", reason="budget") == 3


def test_back_pressure_is_counted_while_it_lasts() -> None:
    reported = metrics()
    reported.flow(1, REQUESTS, paused=True)
    time.sleep(0.02)
    reported.pass_time()
    while_paused = value(reported, "parley:back_pressure_seconds_total", partition="1", topic=REQUESTS)
    reported.flow(1, REQUESTS, paused=False)
    after = value(reported, "parley:back_pressure_seconds_total", partition="1", topic=REQUESTS)
    time.sleep(0.02)
    reported.pass_time()
    assert 0.02 <= while_paused <= after
    assert value(reported, "parley:back_pressure_seconds_total", partition="1", topic=REQUESTS) == after


def test_a_sweep_tells_what_is_held_and_what_was_forgotten() -> None:
    reported = metrics()
    reported.swept(2, {Table.CONVERSATIONS: 5}, {Table.CONVERSATIONS: 3})
    reported.swept(2, {Table.CONVERSATIONS: 4}, {Table.CONVERSATIONS: 1})
    assert value(reported, "parley:table_rows", partition="2", table="conversations") == 4
    assert value(reported, "parley:expired_total", table="conversations") == 4


@pytest.mark.parametrize(
    ("raw", "cause"),
    [
        (b"\xff", "encoding"),
        (b"{", "malformed"),
        (b"[1]", "wrong_type"),
        (b"[" * 200 + b"]" * 200, "depth"),
        (None, "no_value"),
        (b'{"user_id": "ann", "prompt": "x"}', "missing_field"),
        (b'{"request_id": "r", "user_id": "ann", "prompt": 7}', "wrong_type"),
        (b'{"request_id": "r", "user_id": "ann", "prompt": "x", "priority": "now"}', "wrong_value"),
        (b'{"request_id": "!", "user_id": "ann", "prompt": "x"}', "request_id"),
        (b'{"request_id": "r", "user_id": "bob", "prompt": "x"}', "key"),
        (b'{"request_id": "r", "user_id": "ann"}', "prompt"),
        (b'{"request_id": "r", "user_id": "ann", "prompt": "x", "temperature": 9}', "temperature"),
        (b'{"request_id": "r", "user_id": "ann", "prompt": "x", "best_of": 0}', "best_of"),
        (
            b'{"request_id": "r", "user_id": "ann", "prompt": "x", "response_format": {"type": "regex"}}',
            "response_format",
        ),
    ],
)
def test_a_dead_letter_is_counted_by_its_cause(raw: bytes | None, cause: str) -> None:
    reported = metrics()
    with pytest.raises(WireError) as refused:
        validate_request(decode(Request, raw), b"ann", max_prompt_bytes=100)
    headers = tuple(dead_letter_headers(cause_at(refused.value, "requests", 0, 1), ()))
    record = Record(REQUESTS, 0, 1, ASKED_AT, b"ann", raw)
    reported.committed(0, [Commit(record, (), (Outgoing("dead-letters", b"ann", raw, headers),))], 0.01)
    assert value(reported, "parley:dead_letters_total", topic=REQUESTS, cause=cause) == 1


def test_a_cause_that_nobody_knows_is_other() -> None:
    assert cause_of("whatever a user has written: into it") == "other"


def test_a_refusal_is_an_error_to_its_sender() -> None:
    reported = metrics()
    event = TokenEvent(type=EventType.ERROR, error=None)
    reported.refused(Record(REQUESTS, 0, 1, ASKED_AT, b"ann", b""), event)
    assert value(reported, "parley:request_error_total", code="prompt_too_long") == 0
    event = TokenEvent(type=EventType.ERROR, error=ErrorInfo(ErrorCode.PROMPT_TOO_LONG, "long"))
    reported.refused(Record(REQUESTS, 0, 1, ASKED_AT, b"ann", b""), event)
    assert value(reported, "parley:request_error_total", code="prompt_too_long") == 1


def test_a_decided_request_is_counted_by_its_route_and_its_model() -> None:
    reported = metrics()
    plan = Plan(model="small", route="fast")
    for decided in (NO_PLAN, plan, plan):
        answered(reported, plan=decided)
    assert value(reported, "parley:request_routed_total", route="fast", model="small") == 2


def test_a_tally_is_a_histogram_as_prometheus_has_it() -> None:
    tally = Counts("parley:x_seconds", "x", (0.1, 1.0))
    tally.observe_all([0.1, 0.5, 7.0])
    (family,) = tally.collect()
    samples = {(sample.name, sample.labels.get("le")): sample.value for sample in family.samples}
    assert samples["parley:x_seconds_bucket", "0.1"] == 1
    assert samples["parley:x_seconds_bucket", "1.0"] == 2
    assert samples["parley:x_seconds_bucket", "+Inf"] == samples["parley:x_seconds_count", None] == 3
    assert math.isclose(samples["parley:x_seconds_sum", None], 7.6)


def test_gpus_are_told_by_number_and_load_only_where_it_is_known() -> None:
    used, total, busy = gpu_families([Gpu("0", 5, 10, 0.5), Gpu("1", 1, 10, None)])
    assert [sample.value for sample in used.samples] == [5, 1]
    assert [sample.value for sample in total.samples] == [10, 10]
    assert [sample.labels["gpu"] for sample in busy.samples] == ["0"]


def test_notices_of_the_policy_and_records_of_the_audit_are_counted() -> None:
    reported = metrics()
    answered(reported, plan=Plan(notice=FALLBACK))
    answered(reported)
    assert value(reported, "parley:request_notices_total", code=FALLBACK) == 1
    assert value(reported, "parley:request_notices_total", code=DEGRADED) == 0
    reported.committed(0, [Commit(audit=audit_of_erasure("ann", None, 5)), Commit()], 0.01)
    assert value(reported, "parley:audit_records_total") == 1


def test_steps_are_counted_by_the_sequences_that_they_computed() -> None:
    times = StepTimes()
    for rows in (1, 3, 4, 300):
        times.count(rows)
    stats = EngineStats(steps=times.steps, step_rows=StepRows(tuple(times.by_rows), times.rows))
    engine = cast("Engine", SimpleNamespace(model_version="m", stats=stats))
    (family,) = [one for one in engine_families([engine]) if one.name == "parley:engine_step_rows"]
    found = {sample.labels.get("le", sample.name.rpartition("_")[2]): sample.value for sample in family.samples}
    assert found == {
        "1.0": 1, "2.0": 1, "4.0": 3, "8.0": 3, "16.0": 3, "32.0": 3, "64.0": 3, "128.0": 3, "256.0": 3, "+Inf": 4,
        "count": 4, "sum": 308,
    }  # fmt: skip
