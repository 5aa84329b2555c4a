"""Lines that a library writes over and over, a few seconds apart.

While a broker is away aiokafka tries again every few milliseconds and says so each time. What a line says is kept, once
in `PERIOD_S` for each text; how many were held back is told by the next one. Other lines are not touched.
"""

from __future__ import annotations

import logging
import time

PERIOD_S = 5.0
_MOST_TEXTS = 1000


class LogLimit(logging.Filter):
    """Lets each text through once in `period_s`."""

    def __init__(self, period_s: float = PERIOD_S) -> None:
        super().__init__()
        self._period_s = period_s
        self._told: dict[str, float] = {}
        self._held: dict[str, int] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        text = record.getMessage()
        now = time.monotonic()
        if now - self._told.get(text, -self._period_s) < self._period_s:
            self._held[text] = self._held.get(text, 0) + 1
            return False
        if len(self._told) >= _MOST_TEXTS:
            self._told.clear()
            self._held.clear()
        self._told[text] = now
        if held := self._held.pop(text, 0):
            record.msg, record.args = f"{text} ({held} more like it)", ()
        return True


def limit_logs(library: str) -> None:
    """Limit what the loggers of an imported library say."""
    limit = LogLimit()
    for name, logger in logging.root.manager.loggerDict.items():
        if isinstance(logger, logging.Logger) and (name == library or name.startswith(f"{library}.")):
            logger.addFilter(limit)
