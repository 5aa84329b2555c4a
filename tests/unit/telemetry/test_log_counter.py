"""Lines of the log as a metric."""

from __future__ import annotations

import logging

from prometheus_client import CollectorRegistry

from app.telemetry.log_counter import LogCounter


def test_lines_from_warning_on_are_counted_with_their_exception() -> None:
    registry = CollectorRegistry()
    counter = LogCounter(registry, "lines")
    log = logging.getLogger("app.somewhere")

    def counted(level: str, exception: str = "") -> float | None:
        return registry.get_sample_value(
            "lines_total", {"level": level, "logger": "app.somewhere", "exception": exception}
        )

    log.warning("before it starts")
    counter.start()
    try:
        log.info("not counted")
        log.warning("counted %d", 1)
        try:
            raise LookupError("a secret")
        except LookupError:
            log.exception("failed")
    finally:
        counter.stop()
    log.warning("after its end")
    assert (counted("warning"), counted("error"), counted("error", "LookupError")) == (1, None, 1)
    assert counted("info") is None


def test_exceptions_and_loggers_stay_bounded() -> None:
    registry = CollectorRegistry()
    counter = LogCounter(registry, "lines")
    for number in range(1000):
        kind = type(f"Error{number}", (Exception,), {})
        record = logging.LogRecord(f"l{number}", logging.ERROR, "", 0, "x", (), (kind, kind(), None))
        counter.handle(record)
    (family,) = registry.collect()
    totals = [sample for sample in family.samples if sample.name == "lines_total"]
    assert sum(sample.value for sample in totals) == 1000
    assert len(totals) == 65
