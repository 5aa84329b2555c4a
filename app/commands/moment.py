"""Times on the command line: `2024-05-01`, `2024-05-01T09:30`, or `90m`, `36h`, `7d` ago; and periods of them."""

from __future__ import annotations

import re
import time
from datetime import datetime
from typing import Any

import click

from app.commands.terminal import WrongUseError

_UNITS_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}


class Moment(click.ParamType):
    """Unix milliseconds; 0 for what lies before them: Kafka takes no others. A time without a zone is local."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        if ago := re.fullmatch(r"(\d{1,6})([smhdw])", value):
            return max(0, time.time_ns() // 1_000_000 - int(ago[1]) * _UNITS_MS[ago[2]])
        try:
            return max(0, int(datetime.fromisoformat(value).astimezone().timestamp() * 1000))
        except (ValueError, OverflowError, OSError):
            self.fail(
                f"{value!r} is not a time; write 2024-05-01, 2024-05-01T09:30, or 90m, 36h, 7d for a time ago",
                param,
                ctx,
            )


def check_period(since: int | None, until: int | None) -> None:
    """Refuse a period that contains no time, as `--since 1h --until 2h`: it would seem that nothing happened then."""
    if since is not None and until is not None and until <= since:
        raise WrongUseError("--until must be later than --since: no time lies between them")
