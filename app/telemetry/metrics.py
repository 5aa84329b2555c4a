"""Metrics of one worker: vLLM's names where they mean the same, with the prefix `parley:`.

Labels are bounded: finish reasons, error codes and partition numbers, never users or requests.
"""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Histogram

from app.delivery.answer_log import AnswerLog
from app.delivery.claim import Claim
from app.wire.event import TokenEvent
from models.batching import Flush

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)
_SHORT = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1)
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128)


class Metrics:
    """What is counted as it happens; what can be looked up is collected when it is asked for (collector.py)."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry
        self._first_token = Histogram(
            "parley:time_to_first_token_seconds",
            "from the request's record to its first token",
            buckets=_SECONDS,
            registry=registry,
        )
        self._whole = Histogram(
            "parley:e2e_request_latency_seconds",
            "from the request's record to its end",
            buckets=_SECONDS,
            registry=registry,
        )
        self._queued = Histogram(
            "parley:request_queue_time_seconds",
            "from the request's record to its turn in the worker",
            buckets=_SECONDS,
            registry=registry,
        )
        self._prompt_tokens = Counter("parley:prompt_tokens", "tokens of prompts", registry=registry)
        self._answer_tokens = Counter("parley:generation_tokens", "tokens of answers", registry=registry)
        self._cached_tokens = Counter("parley:prefix_cache_hits", "prompt tokens found in the cache", registry=registry)
        self._done = Counter("parley:request_success", "requests done", ["finished_reason"], registry=registry)
        self._failed = Counter("parley:request_error", "requests that ended in an error", ["code"], registry=registry)
        self._dead_letters = Counter("parley:dead_letters", "records refused", ["topic"], registry=registry)
        self._batch_size = Histogram(
            "parley:batch_size", "prompts that left together", ["reason"], buckets=_SIZES, registry=registry
        )
        self._batch_wait = Histogram(
            "parley:batch_wait_seconds", "wait of a prompt for its batch", buckets=_SHORT, registry=registry
        )
        self._finish = Histogram(
            "parley:finish_seconds", "a transaction of finishes", buckets=_SECONDS, registry=registry
        )
        self._finished = Counter("parley:finishes", "finishes committed", registry=registry)

    def answered(self, claim: Claim, answer: AnswerLog, end: TokenEvent) -> None:
        asked = claim.record.timestamp
        if claim.started_at is not None:
            self._queued.observe(max(0, claim.started_at - asked) / 1000)
        if claim.said is None and answer.first_at is not None:
            self._first_token.observe(max(0, answer.first_at - asked) / 1000)
        if end.timestamp is not None:
            self._whole.observe(max(0, end.timestamp - asked) / 1000)
        if end.usage is not None:
            self._prompt_tokens.inc(end.usage.prompt_tokens)
            self._answer_tokens.inc(end.usage.completion_tokens)
            self._cached_tokens.inc(end.usage.cached_tokens)
        if end.error is not None:
            self._failed.labels(end.error.code).inc()
        elif end.finish_reason is not None:
            self._done.labels(end.finish_reason.value).inc()

    def refused(self, topic: str) -> None:
        self._dead_letters.labels(topic).inc()

    def batch_left(self, _partition: int, flush: Flush) -> None:
        self._batch_size.labels(flush.reason.value).observe(flush.size)
        for wait in flush.waits:
            self._batch_wait.observe(wait)

    def committed(self, finishes: int, seconds: float) -> None:
        self._finish.observe(seconds)
        self._finished.inc(finishes)
