from __future__ import annotations

import logging
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
import yaml

from app.telemetry.log_format import JsonFormatter

CONFIG = Path(__file__).parents[3] / "deploy" / "collector" / "collector.yaml"


def test_collector_reads_the_fields_that_a_line_of_the_log_has() -> None:
    record = logging.makeLogRecord({"name": "parley.requests", "levelname": "INFO", "msg": "request ended"})
    record.fields = {"trace": "0" * 32}
    line = msgspec.json.decode(JsonFormatter().format(record))
    parser, tracer = yaml.safe_load(CONFIG.read_text())["receivers"]["filelog"]["operators"]
    fields = [parser["timestamp"]["parse_from"], parser["severity"]["parse_from"], tracer["trace_id"]["parse_from"]]
    assert {field.removeprefix("attributes.") for field in fields} <= set(line)


def test_collector_reads_the_times_as_they_are_written() -> None:
    layout = _parser()["timestamp"]["layout"]
    written = msgspec.json.decode(JsonFormatter().format(logging.makeLogRecord({})))["time"]
    assert datetime.fromisoformat(written).tzinfo is not None
    assert len(written) == len(layout.replace("Z07:00", "+00:00"))


def test_every_pipeline_of_the_collector_uses_what_is_configured() -> None:
    config = yaml.safe_load(CONFIG.read_text())
    for pipeline in config["service"]["pipelines"].values():
        for kind, names in pipeline.items():
            assert set(names) <= set(config[kind])


def _parser() -> dict[str, Any]:
    parser: dict[str, Any] = yaml.safe_load(CONFIG.read_text())["receivers"]["filelog"]["operators"][0]
    return parser
