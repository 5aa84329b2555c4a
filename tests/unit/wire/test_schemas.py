"""The schemas describe the records, and the published files are the schemas."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import fastavro
import jsonschema
import msgspec
import pytest
from click.testing import CliRunner
from hypothesis import given

from app.commands import parley
from app.wire.codec import encode
from app.wire.schemas import RECORDS, avro_schema, json_schema, subject
from app.wire.turn import Turn
from app.wire.usage import UsageWindow
from tests.unit.wire import records

PUBLISHED = Path(__file__).parents[3] / "deploy" / "connect" / "schemas"
topics = pytest.mark.parametrize("topic", RECORDS)


@topics
def test_published_schemas_are_current(topic: str) -> None:
    assert json.loads((PUBLISHED / f"{subject(topic)}.json").read_text()) == json_schema(topic), "run `make schemas`"
    assert json.loads((PUBLISHED / f"{subject(topic)}.avsc").read_text()) == avro_schema(topic), "run `make schemas`"


@given(turn=records.turns)
def test_a_turn_fits_both_schemas(turn: Turn) -> None:
    _fits("turns", turn)


@given(window=records.usage_windows)
def test_a_usage_window_fits_both_schemas(window: UsageWindow) -> None:
    _fits("usage", window)


def test_a_record_that_lacks_a_field_fits_neither() -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"user_id": "u"}, json_schema("erasures"))
    with pytest.raises((ValueError, KeyError)):
        fastavro.schemaless_writer(io.BytesIO(), fastavro.parse_schema(avro_schema("erasures")), {"user_id": "u"})


@topics
@pytest.mark.parametrize("options", [[], ["--avro"]])
def test_a_registry_gets_the_schema_as_text(topic: str, options: list[str]) -> None:
    printed = CliRunner().invoke(parley, ["schema", topic, *options, "--registry"])
    body = json.loads(printed.stdout)
    assert body["schemaType"] == ("AVRO" if options else "JSON")
    assert json.loads(body["schema"]) == (avro_schema(topic) if options else json_schema(topic))


def _fits(topic: str, record: Any) -> None:
    plain = msgspec.json.decode(encode(record)[0])
    jsonschema.validate(plain, json_schema(topic))
    written = io.BytesIO()
    parsed = fastavro.parse_schema(avro_schema(topic))
    fastavro.schemaless_writer(written, parsed, plain, strict=True)
