"""JSON log lines: `PARLEY_LOG_FORMAT=json`.

A record with `fields`, a dict passed as `extra={"fields": ...}`, has them as members of its object.
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import Any

import msgspec

# Faust creates its handlers with one of these formatters; both are replaced, so that its options still work.
FAUST_LOGGING = {
    "merge": True,
    "formatters": {name: {"()": "app.telemetry.log_format.JsonFormatter"} for name in ("default", "colored")},
}


class JsonFormatter(logging.Formatter):
    """One object per line: `time` (RFC 3339), `level`, `logger`, `message`, the fields, and `traceback` of an error."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line, enc_hook=str).decode()
