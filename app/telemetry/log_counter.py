"""Warnings and errors of the log, counted: what goes wrong shows in a metric before anybody reads the log."""

from __future__ import annotations

import logging

from prometheus_client import CollectorRegistry, Counter

from app.telemetry.first_come import FirstCome

_LOGGERS = 64
_EXCEPTIONS = 64


class LogCounter(logging.Handler):
    """Counts lines from level WARNING on by level, logger and exception; `exception` is empty without a traceback."""

    def __init__(self, registry: CollectorRegistry, name: str) -> None:
        super().__init__(logging.WARNING)
        labels = ("level", "logger", "exception")
        self._lines = Counter(name, "Lines of the log at warning, error and critical.", labels, registry=registry)
        self._logger = FirstCome(_LOGGERS)
        self._exception = FirstCome(_EXCEPTIONS)

    def start(self) -> None:
        logging.getLogger().addHandler(self)

    def stop(self) -> None:
        logging.getLogger().removeHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        raised = record.exc_info[0] if record.exc_info else None
        exception = self._exception(raised.__name__) if raised else ""
        self._lines.labels(record.levelname.lower(), self._logger(record.name), exception).inc()
