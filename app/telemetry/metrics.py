"""Metrics of one worker: vLLM's names if they mean the same, with the prefix `parley:`.

Labels are bounded: partitions, finish reasons, error codes, causes, and the first N tenants; never users or requests.
What happens per token is collected by the answer and counted here at its end (`Counts`).
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from app.delivery.commits.commit import Commit
from app.delivery.inflight import InFlight, Outcome
from app.delivery.observer import Observer
from app.delivery.record import Outgoing, Record
from app.delivery.resume.answer_log import AnswerLog
from app.settings import Settings
from app.telemetry.first_come import OTHER, FirstCome
from app.wire.control import Audit
from app.wire.dead_letters import cause_from
from app.wire.error import ErrorCode
from app.wire.event import DEGRADED, FALLBACK, TokenEvent
from app.wire.request import Request
from app.wire.tool_records import ToolResultRecord
from app.wire.turn import Turn
from models.interface.batcher import Flush
from models.interface.generation import FinishReason, Usage
from tables.records import Table

_SERVICE_FAULTS = frozenset({ErrorCode.DEADLINE_EXCEEDED, ErrorCode.ENGINE_ERROR, ErrorCode.OVERLOADED})
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 10, 30, 60, 120)
_SHORT = (0.0005, 0.001, 0.0025, 0.005, 0.0075, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 1, 2.5)
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128)
_TOKENS = (1, 4, 16, 64, 256, 1024, 4096, 16384, 65536)
_MODELS = 32
_TENANTS = 20
_ROUTES = 20
_RESULTS = ("good", "slow", "failed")
FIELDS = frozenset(
    {"key", "type", *Request.__struct_encode_fields__, *Audit.__struct_fields__, *ToolResultRecord.__struct_fields__}
)
_KINDS = (
    ("not UTF-8", "encoding"),
    ("nested deeper", "depth"),
    ("the record has no value", "no_value"),
    ("not Protobuf", "malformed"),
    ("JSON is malformed", "malformed"),
    ("Input data was truncated", "malformed"),
    ("Object missing required field", "missing_field"),
    ("Expected ", "wrong_type"),
    ("Invalid ", "wrong_value"),
    ("exactly one of prompt and messages", "prompt"),
)
"""Beginnings of the messages of dead letters, and their causes."""


class WorkerMetrics(Observer):
    """Counters and histograms of events; current state is collected at scrapes (collector.py)."""

    def __init__(self, registry: CollectorRegistry, settings: Settings) -> None:
        self.registry = registry
        self._objective_s = settings.first_token_objective_s
        self._budget_s = settings.batch_budget_ms / 1000
        self._dead_letter_topic = settings.topic("dead-letters")
        self._source_of = {settings.topic(name): name for name in ("requests", "controls", "turns")}
        self._tenant = FirstCome(_TENANTS)
        self._model = FirstCome(_MODELS)
        self._route = FirstCome(_ROUTES)
        self._objectives: set[tuple[str, str]] = set()
        self._paused: dict[tuple[int, str], float] = {}
        self._declare_requests()
        self._declare_partitions()

    def _declare_requests(self) -> None:
        seconds, tokens, counter = self._seconds, self._tokens_of, self._counter
        self._first_token = seconds(
            "time_to_first_token_seconds", "Seconds from the request's record to its first token."
        )
        objective = Gauge(
            "parley:first_token_objective_seconds",
            "After this time a first token is slow: PARLEY_FIRST_TOKEN_OBJECTIVE_S.",
            registry=self.registry,
        )
        objective.set(self._objective_s)
        self._whole = seconds("e2e_request_latency_seconds", "Seconds from the request's record to its end.")
        self._queued = seconds(
            "request_queue_time_seconds", "Seconds from the request's record to its admission by the engine."
        )
        self._prefill = seconds(
            "request_prefill_time_seconds", "Seconds from admission by the engine to the first token."
        )
        self._decode = seconds("request_decode_time_seconds", "Seconds from the first token of an answer to its last.")
        self._inference = seconds("request_inference_time_seconds", "Seconds of prefill and decode together.")
        self._per_token = self._seconds(
            "request_time_per_output_token_seconds", "Decode seconds per token, per answer.", _SHORT
        )
        self._gaps = Counts("parley:inter_token_latency_seconds", "Seconds between two tokens of an answer.", _SHORT)
        self.registry.register(self._gaps)
        self._prompt_sizes = tokens("request_prompt_tokens", "Prompt tokens per request.")
        self._answer_sizes = tokens("request_generation_tokens", "Generated tokens per answer.")
        self._prompt_tokens = counter("prompt_tokens", "Prompt tokens.")
        self._answer_tokens = counter("generation_tokens", "Generated tokens.")
        self._cache_queries = counter("prefix_cache_queries", "Prompt tokens looked up in the prefix cache.")
        self._cache_hits = counter("prefix_cache_hits", "Prompt tokens found in the prefix cache.")
        self._done = counter("request_success", "Requests that ended in `done`.", "finished_reason")
        self._routed = counter(
            "request_routed", "Requests by the policy's route and the model that answered.", "route", "model"
        )
        self._notices = counter(
            "request_notices", "Requests whose readers get a notice of the policy's decision.", "code"
        )
        for code in (DEGRADED, FALLBACK):
            self._notices.labels(code)
        self._cost = counter(
            "cost", "Cost of answers by tenant, model and arm of an experiment.", "tenant", "model", "arm"
        )
        self._saved = counter("cost_saved", "Cost that the response cache or a cheaper model has saved.", "by")
        self._failed = counter("request_error", "Requests that ended with an error.", "code")
        self._objective = counter(
            "objective_requests",
            "Requests by whether their objective was met: `good`, `slow` (first token late), `failed` (service).",
            "tenant",
            "route",
            "result",
        )
        # Prometheus does not see an increase in a series that begins at 1.
        for reason in FinishReason:
            self._done.labels(reason.value)
        for code in ErrorCode:
            self._failed.labels(code.value)
        self._tokens = counter("tokens", "Tokens by tenant and model.", "tenant", "model", "kind")

    def _declare_partitions(self) -> None:
        counter = self._counter
        self._dead_letters = counter("dead_letters", "Records that became dead letters.", "topic", "cause")
        self._batch_size = Histogram(
            "parley:batch_size",
            "Prompts per batch.",
            ["partition", "reason"],
            buckets=_SIZES,
            registry=self.registry,
        )
        self._batch_wait = self._seconds(
            "batch_wait_seconds", "Seconds that a prompt waited for its batch.", _SHORT, "partition"
        )
        self._over = counter(
            "batch_over_budget_seconds", "Seconds of waiting beyond the batch budget, summed.", "partition"
        )
        self._commit = self._seconds("commit_seconds", "Seconds of a commit's transaction.", _SECONDS, "partition")
        self._committed = counter("commits", "Commits; each is the outcome of one record.", "partition")
        self._audit = counter("audit_records", "Records of `audit` that are committed.")
        self._pressure = counter(
            "back_pressure_seconds", "Seconds that a topic's partition was paused.", "partition", "topic"
        )
        self._held = Gauge(
            "parley:table_rows", "Rows after the last sweep.", ["partition", "table"], registry=self.registry
        )
        self._expired = counter("expired", "Rows deleted because they expired.", "table")
        self._index_lag = self._seconds("index_seconds", "Seconds from a turn's end to its rows in Milvus.", _SECONDS)

    def answered(self, partition: int, outcome: Outcome) -> None:  # noqa: ARG002
        answer, end, plan, accepted = outcome.answer, outcome.end, outcome.answer.plan, outcome.inflight.accepted
        asked = accepted.record.timestamp
        if accepted.former.answer is None:
            self._timed(outcome.inflight, answer)
        if answer.ended_at is not None:
            self._whole.observe(max(0, answer.ended_at - asked) / 1000)
        self._gaps.observe_all(answer.gaps)
        if end.usage is not None:
            self._spent(accepted.request.tenant or "", end.model_version or "", end.usage)
            self._cost.labels(
                self._tenant(accepted.request.tenant or ""),
                self._model(end.model_version or ""),
                plan.arm or "",
            ).inc(outcome.cost)
            if outcome.saved:
                self._saved.labels("cache" if plan.cached else "route").inc(outcome.saved)
        if plan.model is not None:
            self._routed.labels(plan.route or "", plan.model).inc()
        if plan.notice in {DEGRADED, FALLBACK}:
            self._notices.labels(plan.notice).inc()
        if end.error is not None:
            self._failed.labels(end.error.code).inc()
        elif end.finish_reason is not None:
            self._done.labels(end.finish_reason.value).inc()
        self._objective_of(
            accepted.request.tenant or "", plan.route or "", _result_of(end, answer.first_at, asked, self._objective_s)
        )

    def _objective_of(self, tenant: str, route: str, result: str) -> None:
        """Count it, from a series that begins at 0."""
        names = self._tenant(tenant), self._route(route)
        for one in _RESULTS if names not in self._objectives else ():
            self._objective.labels(*names, one)
        self._objectives.add(names)
        self._objective.labels(*names, result).inc()

    def _timed(self, inflight: InFlight, answer: AnswerLog) -> None:
        asked = inflight.accepted.record.timestamp / 1000
        timeline = inflight.timeline
        if timeline.admitted is None:
            if timeline.started is not None:
                self._queued.observe(max(0.0, timeline.started / 1e9 - asked))
            return
        begun = timeline.admitted / 1e9
        self._queued.observe(max(0.0, begun - asked))
        if answer.first_at is None:
            return
        first = answer.first_at / 1000
        prefill, decode = max(0.0, first - begun), sum(answer.gaps)
        self._first_token.observe(max(0.0, first - asked))
        self._prefill.observe(prefill)
        self._decode.observe(decode)
        self._inference.observe(prefill + decode)
        if answer.index > 1:
            self._per_token.observe(decode / (answer.index - 1))

    def _spent(self, tenant: str, model: str, usage: Usage) -> None:
        self._prompt_tokens.inc(usage.prompt_tokens)
        self._answer_tokens.inc(usage.completion_tokens)
        self._cache_queries.inc(usage.prompt_tokens)
        self._cache_hits.inc(usage.cached_tokens)
        self._prompt_sizes.observe(usage.prompt_tokens)
        self._answer_sizes.observe(usage.completion_tokens)
        names = self._tenant(tenant), self._model(model)
        self._tokens.labels(*names, "prompt").inc(usage.prompt_tokens)
        self._tokens.labels(*names, "cached").inc(usage.cached_tokens)
        self._tokens.labels(*names, "completion").inc(usage.completion_tokens)

    def refused(self, record: Record, event: TokenEvent) -> None:  # noqa: ARG002
        if event.error is not None:
            self._failed.labels(event.error.code).inc()

    def batch_left(self, partition: int, flush: Flush) -> None:
        name = str(partition)
        self._batch_size.labels(name, flush.reason.value).observe(flush.size)
        waited = self._batch_wait.labels(name)
        for wait in flush.waits:
            waited.observe(wait)
        if over := sum(max(0.0, wait - self._budget_s) for wait in flush.waits):
            self._over.labels(name).inc(over)

    def committed(self, partition: int, commits: Sequence[Commit], seconds: float) -> None:
        self._commit.labels(str(partition)).observe(seconds)
        self._committed.labels(str(partition)).inc(len(commits))
        for commit in commits:
            self._audit.inc(len(commit.audit))
            for output in commit.outputs:
                if output.topic == self._dead_letter_topic:
                    self._dead_letter(output)

    def _dead_letter(self, output: Outgoing) -> None:
        cause = cause_from(output.headers)
        if cause is not None:
            self._dead_letters.labels(self._source_of.get(cause.topic, "other"), cause_of(cause.message)).inc()

    def flow(self, partition: int, topic: str, *, paused: bool) -> None:
        self.pass_time()
        if paused:
            self._paused[partition, topic] = time.monotonic()
        else:
            self._paused.pop((partition, topic), None)

    def pass_time(self) -> None:
        """Count the pauses up to now; called before each scrape."""
        now = time.monotonic()
        for key, since in self._paused.items():
            self._pressure.labels(str(key[0]), key[1]).inc(now - since)
            self._paused[key] = now

    def swept(self, partition: int, held: Mapping[Table, int], expired: Mapping[Table, int]) -> None:
        for table in (Table.CONVERSATIONS, Table.ENDED, Table.ERASED):
            self._held.labels(str(partition), table.value).set(held.get(table, 0))
            self._expired.labels(table.value).inc(expired.get(table, 0))

    def indexed(self, record: Record, turn: Turn, received_ns: int) -> None:  # noqa: ARG002
        self._index_lag.observe(max(0.0, time.time() - record.timestamp / 1000))

    def _seconds(self, name: str, documentation: str, buckets: Sequence[float] = _SECONDS, *labels: str) -> Histogram:
        return Histogram(f"parley:{name}", documentation, labels, buckets=buckets, registry=self.registry)

    def _tokens_of(self, name: str, documentation: str) -> Histogram:
        return Histogram(f"parley:{name}", documentation, buckets=_TOKENS, registry=self.registry)

    def _counter(self, name: str, documentation: str, *labels: str) -> Counter:
        return Counter(f"parley:{name}", documentation, labels, registry=self.registry)


class Counts(Collector):
    """A histogram for per-token observations: one bisection and two additions, no lock, read at scrapes.

    Belongs to one thread; a scrape from another thread may miss the newest observations.
    """

    def __init__(self, name: str, documentation: str, bounds: Sequence[float]) -> None:
        self._name = name
        self._documentation = documentation
        self._bounds = tuple(bounds)
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe_all(self, values: Iterable[float]) -> None:
        bounds, counts = self._bounds, self._counts
        total = 0.0
        for value in values:
            counts[bisect_left(bounds, value)] += 1
            total += value
        self._sum += total

    def collect(self) -> Iterable[Metric]:
        names = [*map(floatToGoString, self._bounds), "+Inf"]
        buckets = list(zip(names, map(float, accumulate(self._counts)), strict=True))
        yield HistogramMetricFamily(self._name, self._documentation, buckets=buckets, sum_value=self._sum)


def _result_of(end: TokenEvent, first_at: int | None, asked: int, objective_s: float) -> str:
    """An error that the caller has caused counts as good: the service did what it should."""
    if end.error is not None:
        return "failed" if end.error.code in _SERVICE_FAULTS else "good"
    return "slow" if first_at is not None and first_at - asked > objective_s * 1000 else "good"


def cause_of(message: str) -> str:
    """The cause of a dead letter by its message: the invalid field, the kind of error, or `other`."""
    field = message.partition(":")[0].partition(".")[0]
    if field in FIELDS:
        return field
    return next((cause for beginning, cause in _KINDS if message.startswith(beginning)), OTHER)
