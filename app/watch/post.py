"""What the watcher does for one worker that has connected to it."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from app.telemetry.log_format import JsonFormatter
from app.watch.brake import MOST, WITHIN_S, Brake
from app.watch.goodbye import Goodbye, LeaveOutcome

log = logging.getLogger("parley.watch")

MOST_BYTES = 1 << 16
"""Of a line."""
UNREADABLE = (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError)
"""What a line raises that is none of this protocol."""


@dataclass
class Ward:
    """A worker under watch: what it has sent. `member` is empty before its first join."""

    name: str = ""
    process: int = 0
    member: str = ""
    has_left: bool = False

    def hear(self, line: bytes) -> None:
        """A line of it; one that cannot be read tells nothing."""
        with suppress(*UNREADABLE):
            fields = json.loads(line)
            process = int(fields.get("process", self.process))
            self.name = str(fields.get("worker", self.name))
            self.process = process
            self.member = str(fields.get("member", self.member))
            self.has_left = bool(fields.get("left", self.has_left))


async def listen(worker: Ward, reader: asyncio.StreamReader) -> None:
    """Until it has left, or its socket has ended."""
    while not worker.has_left:
        try:
            line = await reader.readline()
        except (OSError, ValueError):  # reset, or a line without an end
            return
        if not line:
            return
        worker.hear(line)


async def leave_for(worker: Ward, goodbye: Goodbye, group: str, brake: Brake, session_s: float) -> None:
    """The worker is gone and has not left."""
    if not worker.member:
        return
    fields: dict[str, Any] = {"group": group, "member": worker.member, "process": worker.process}
    who = f"the worker (process {worker.process}) has died"
    if brake.holds():
        line = (
            f"{who}, for the {MOST + 1}th time within {WITHIN_S:g} s; the group {group} notices within {session_s:g} s"
        )
        log.warning(line, extra={"fields": fields})
        return
    began = time.monotonic()
    outcome = await goodbye.leave(worker.member, session_s)
    took_s = time.monotonic() - began
    level = logging.INFO if outcome is LeaveOutcome.LEFT else logging.WARNING
    line = f"{who}; the watcher leaves {group} for its member {worker.member}: {outcome} ({took_s:.3f} s)"
    log.log(level, line, extra={"fields": fields})
    if outcome is LeaveOutcome.LEFT:
        brake.note()


def report_line(ready: bool, brake: Brake) -> bytes:
    """The watcher's line to the worker."""
    return json.dumps({"ready": ready, "leaves": brake.leaves}).encode() + b"\n"


def log_as(log_format: str) -> None:
    """Its lines are those of a worker, and a reader that has died with the worker is no error."""
    logging.raiseExceptions = False
    text = logging.Formatter("[%(asctime)s] [%(process)s] [%(levelname)s] %(message)s")
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter() if log_format == "json" else text)
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL + 1)  # it logs each try
