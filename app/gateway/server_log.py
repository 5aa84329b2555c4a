"""Uvicorn's lines about what peers send: in the format of all others, and each text once in a while.

Any peer can send what is no HTTP request, as often as it wants: a scan, or TLS to a plain port. These lines have
nothing of what it has sent. Errors of this program keep their tracebacks and are not limited.
"""

from __future__ import annotations

import logging

from app.log_limit import LogLimit

_NOT_UTF8 = "Invalid UTF-8"


class OfPeers(LogLimit):
    """A filter of the logger `uvicorn.error`."""

    def filter(self, record: logging.LogRecord) -> bool:
        if str(record.msg).startswith(_NOT_UTF8):  # of a WebSocket's peer; the traceback is uvicorn's own
            record.levelno, record.levelname = logging.WARNING, logging.getLevelName(logging.WARNING)
            record.exc_info = None
        return record.exc_info is not None or super().filter(record)
