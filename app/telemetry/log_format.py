"""Log lines of a worker: text, or JSON with `PARLEY_LOG_FORMAT=json`.

A record with `fields`, a dict passed as `extra={"fields": ...}`, has them as members of its object.
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import Any

import msgspec

_TEXT = {
    "()": "mode.utils.logging.DefaultFormatter",
    "format": "[%(asctime)s] [%(process)s] [%(levelname)s] %(message)s %(extra)s",
}


def faust_logging(log_format: str, *, is_terminal: bool) -> dict[str, Any] | None:
    """What differs from Faust's own configuration, if anything does.

    Faust creates its handlers with one of these formatters; they are replaced, so that its options still work. The one
    for terminals takes ten times as long for a line, and without colours the line is the same.
    """
    if log_format == "json":
        json_lines = {"()": "app.telemetry.log_format.JsonFormatter"}
        return {"merge": True, "formatters": {"default": json_lines, "colored": json_lines}}
    return None if is_terminal else {"merge": True, "formatters": {"colored": _TEXT}}


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
