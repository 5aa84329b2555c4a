"""A line of the log is Faust's own, whichever formatter writes it."""

from __future__ import annotations

import io
import json
import logging
import logging.config
import sys
from typing import Any

import pytest
from mode.utils.logging import create_logconfig

from app.telemetry.log_format import faust_logging


def line_of(config: dict[str, Any] | None, record: logging.LogRecord) -> str:
    """As mode merges a configuration into its own (`_setup_logging`)."""
    merged = create_logconfig(formatters={**create_logconfig()["formatters"], **(config or {}).get("formatters", {})})
    settings = {**merged["formatters"]["colored"]}
    if "stream" in settings:
        settings["stream"] = io.StringIO()  # no terminal
    made = logging.config.DictConfigurator({"version": 1}).configure_formatter(settings)
    assert isinstance(made, logging.Formatter)
    return made.format(record)


def record_of(message: str, *args: object, error: bool = False, **more: object) -> logging.LogRecord:
    record = logging.LogRecord(
        "parley", logging.WARNING, "file.py", 1, message, args, sys.exc_info() if error else None
    )
    record.__dict__.update(more)
    return record


def test_a_line_without_a_terminal_is_the_one_with_it_but_for_its_colours() -> None:
    try:
        raise ValueError("some trouble")
    except ValueError:
        failed = record_of("it failed", error=True)
    plain = faust_logging("text", is_terminal=False)
    for record in (record_of("ready: %s of %d", "two", 4), record_of("it is", data={"a": 1, "b": "x"}), failed):
        assert line_of(plain, record) == line_of(None, record)
        assert "[WARNING] " in line_of(plain, record)


def test_a_terminal_has_faust_s_colours() -> None:
    assert faust_logging("text", is_terminal=True) is None


@pytest.mark.parametrize("is_terminal", [False, True])
def test_json_lines_are_objects(*, is_terminal: bool) -> None:
    line = line_of(faust_logging("json", is_terminal=is_terminal), record_of("ready", fields={"partition": 3}))
    assert json.loads(line) | {"time": ""} == {
        "time": "", "level": "warning", "logger": "parley", "message": "ready", "partition": 3,
    }  # fmt: skip
