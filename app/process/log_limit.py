"""Rate-limit lines that a library logs over and over.

While a broker is unreachable, aiokafka retries every few milliseconds and logs each attempt. Each distinct text is
logged once in `PERIOD_S`; the next line with that text says how many were suppressed. Other lines are not affected.
Lines whose texts differ for one cause name it: `extra={"cause": ...}`.
"""

from __future__ import annotations

import logging
import time

PERIOD_S = 5.0
_MOST_TEXTS = 1000


class LogLimit(logging.Filter):
    """Passes each text, or each cause of a line that names one, once in `period_s`."""

    def __init__(self, period_s: float = PERIOD_S) -> None:
        super().__init__()
        self._period_s = period_s
        self._logged_at: dict[str, float] = {}
        self._held: dict[str, int] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        text = getattr(record, "cause", None) or record.getMessage()
        now = time.monotonic()
        if now - self._logged_at.get(text, -self._period_s) < self._period_s:
            self._held[text] = self._held.get(text, 0) + 1
            return False
        if len(self._logged_at) >= _MOST_TEXTS:
            self._logged_at.clear()
            self._held.clear()
        self._logged_at[text] = now
        if held := self._held.pop(text, 0):
            record.msg, record.args = f"{record.getMessage()} ({held} similar lines suppressed)", ()
        return True


def limit_logs(library: str, *before: logging.Filter) -> None:
    """Limit the loggers of an imported library; the filters `before` see each line first."""
    limit = LogLimit()
    for name, logger in logging.root.manager.loggerDict.items():
        if isinstance(logger, logging.Logger) and (name == library or name.startswith(f"{library}.")):
            for one in (*before, limit):
                logger.addFilter(one)
