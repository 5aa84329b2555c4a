"""Metrics of a model server by OpenTelemetry's conventions for generative AI, v0.1.0, as Prometheus writes their names.

`gen_ai.server.request.duration` is `gen_ai_server_request_duration_seconds`, and so on; bounds and labels are those of
the conventions. They count from the request's record, as `parley:e2e_request_latency_seconds` does.
"""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Histogram

from app.delivery.inflight import Outcome
from app.delivery.observer import Observer
from app.settings import Settings
from app.telemetry.first_come import FirstCome

_DURATION = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
_FIRST = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
_PER_TOKEN = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5)
_LABELS = ("gen_ai_operation_name", "gen_ai_provider_name", "gen_ai_request_model", "gen_ai_response_model")
_MODELS = 32


class GenAiMetrics(Observer):
    """First tokens and tokens are those of answers that one worker has written whole, and that have not failed."""

    def __init__(self, registry: CollectorRegistry, settings: Settings) -> None:
        self._default = settings.model
        self._model = FirstCome(_MODELS)
        self._duration = Histogram(
            "gen_ai_server_request_duration_seconds",
            "Seconds from the request's record to its end.",
            [*_LABELS, "error_type"],
            buckets=_DURATION,
            registry=registry,
        )
        self._first = Histogram(
            "gen_ai_server_time_to_first_token_seconds",
            "Seconds from the request's record to its first token.",
            _LABELS,
            buckets=_FIRST,
            registry=registry,
        )
        self._per_token = Histogram(
            "gen_ai_server_time_per_output_token_seconds",
            "Seconds per token after the first one, per answer.",
            _LABELS,
            buckets=_PER_TOKEN,
            registry=registry,
        )

    def answered(self, partition: int, outcome: Outcome) -> None:  # noqa: ARG002
        answer, end, accepted = outcome.answer, outcome.end, outcome.inflight.accepted
        asked, model = accepted.record.timestamp, accepted.request.model or self._default
        labels = ("chat", "parley", self._model(model), self._model(end.model_version or ""))
        error = "" if end.error is None else end.error.code
        if answer.ended_at is not None:
            self._duration.labels(*labels, error).observe(max(0, answer.ended_at - asked) / 1000)
        if error or answer.first_at is None or accepted.former.answer is not None:
            return
        self._first.labels(*labels).observe(max(0, answer.first_at - asked) / 1000)
        if answer.index > 1:
            self._per_token.labels(*labels).observe(sum(answer.gaps) / (answer.index - 1))
