"""What is written for readers in Avro and Protobuf, read by the libraries of these formats."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import fastavro
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from app.foreign.formats import decoder_of, encoder_of, fields_of
from app.foreign.passed import Passed, values_of
from app.policy.file import PolicyError
from app.policy.foreign import EgressRules, IntakeRules
from app.wire.json_codec import MalformedError
from tests.unit.foreign.test_formats import PATH, described, question

FIELDS = {"id": "request_id", "said": "answer", "why": "error.code", "at": "created_at", "sent": "source.sent"}
SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "Answer",
    "fields": [
        {"name": "id", "type": ["null", "string"]},
        {"name": "said", "type": ["null", "string"]},
        {"name": "why", "type": "string", "default": "none"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "sent", "type": ["null", "long", {"type": "map", "values": "long"}]},
        {"name": "version", "type": "int", "default": 2},
    ],
}
OWN = {"request_id": "r", "answer": "H\u00f6", "created_at": 1_700_000_000_000}
WRITTEN = {"id": "r", "said": "H\u00f6", "why": "none", "sent": None, "version": 2}


def egress(tmp_path: Path, schema: Any = SCHEMA, fields: dict[str, str] = FIELDS, **rules: Any) -> EgressRules:
    path = tmp_path / "answer"
    is_protobuf = isinstance(schema, descriptor_pb2.FileDescriptorSet)
    path.write_bytes(schema.SerializeToString() if is_protobuf else json.dumps(schema).encode())
    named: Any = {"7": str(path)} if rules.pop("framed", True) else str(path)
    form: Any = {"format": "protobuf", "message": "shop.Answer"} if is_protobuf else {"format": "avro"}
    return EgressRules(topic="t", fields=fields, on=("done", "error"), schema=named, **(form | rules))


def written(rules: EgressRules, own: dict[str, Any] = OWN, **source: Any) -> bytes:
    return encoder_of(rules)(values_of(rules, own, Passed(source)))


def read(value: bytes) -> dict[str, Any]:
    record: Any = fastavro.schemaless_reader(io.BytesIO(value), fastavro.parse_schema(SCHEMA), None)
    return dict(record)


def test_avro_is_what_its_library_reads_framed_or_plain(tmp_path: Path) -> None:
    framed = written(egress(tmp_path))
    assert framed[:5] == b"\0\0\0\0\x07"
    assert written(egress(tmp_path, framed=False)) == framed[5:]
    record = read(framed[5:])
    assert (record.pop("at").timestamp(), record) == (1_700_000_000.0, WRITTEN)
    error = {"error": {"code": "rate_limited", "message": "m"}, "created_at": 1}
    assert read(written(egress(tmp_path), error, sent={"a": 1})[5:]).items() >= {
        "id": None, "said": None, "why": "rate_limited", "sent": {"a": 1}
    }.items()  # fmt: skip


def test_a_value_that_does_not_fit_is_named_and_not_quoted(tmp_path: Path) -> None:
    for form in (SCHEMA, answer()):
        with pytest.raises(MalformedError) as caught:
            written(egress(tmp_path, form), sent="a secret")
        assert ("sent" in str(caught.value), "secret" in str(caught.value)) == (True, False)


@pytest.mark.parametrize(
    ("changed", "fields", "cause"),
    [
        ({}, {**FIELDS, "who": "user_id"}, "has no field 'who'; there are id, said"),
        ({}, {"id": "request_id"}, "'said' has no default, so `fields` has to name it"),
        ({"id": "string"}, FIELDS, "cannot hold an error: id does not fit"),
        ({"at": "string"}, FIELDS, "cannot hold an answer: at does not fit"),
        ({"sent": "long"}, FIELDS, "cannot hold an answer: sent does not fit"),
    ],
)
def test_a_schema_that_does_not_fit_is_found_before_a_record_is_written(
    tmp_path: Path, changed: dict[str, Any], fields: dict[str, str], cause: str
) -> None:
    kinds = [one | {"type": changed.get(one["name"], one["type"])} for one in SCHEMA["fields"]]
    with pytest.raises(PolicyError, match=cause):
        encoder_of(egress(tmp_path, {**SCHEMA, "fields": kinds}, fields))


def answer() -> descriptor_pb2.FileDescriptorSet:
    """`message Other {}` and `message Answer {...}` of the same fields."""
    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="shop.proto", package="shop", syntax="proto3")
    file.message_type.add(name="Other")
    said = file.message_type.add(name="Answer")
    types = {"id": kinds.TYPE_STRING, "said": kinds.TYPE_STRING, "why": kinds.TYPE_STRING, "at": kinds.TYPE_INT64}
    for number, (name, kind) in enumerate({**types, "sent": kinds.TYPE_INT64}.items(), 1):
        said.field.add(name=name, number=number, type=kind, label=kinds.LABEL_OPTIONAL)
    return descriptor_pb2.FileDescriptorSet(file=[file])


def test_protobuf_is_what_its_library_reads_framed_or_plain(tmp_path: Path) -> None:
    pool = descriptor_pool.DescriptorPool()
    pool.Add(answer().file[0])
    kind: Any = message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Answer"))
    plain = written(egress(tmp_path, answer(), framed=False), sent=5)
    assert kind.FromString(plain) == kind(id="r", said="H\u00f6", at=1_700_000_000_000, sent=5)
    assert written(egress(tmp_path, answer()), sent=5) == b"\0\0\0\0\x07" + PATH + plain
    first = egress(tmp_path, answer(), {}, message="shop.Other")
    assert encoder_of(first)({}) == b"\0\0\0\0\x07\0"
    with pytest.raises(PolicyError, match="has no field 'x'; there are id, said, why, at, sent"):
        encoder_of(egress(tmp_path, answer(), {"x": "answer"}))
    with pytest.raises(PolicyError, match="cannot hold an answer: id does not fit"):
        encoder_of(egress(tmp_path, answer(), {"id": "created_at"}))


def test_protobuf_is_read_plain_where_one_file_says_the_message(tmp_path: Path) -> None:
    path = tmp_path / "shop.desc"
    path.write_bytes(described().SerializeToString())
    fields = {"prompt": "text", "user_id": "user"}
    one: Any = {"topic": "t", "fields": fields, "format": "protobuf", "message": "shop.Question"}
    decode = decoder_of(IntakeRules(**one, schema=str(path)))
    for value in (question(), b"\0\0\0\0\x07" + PATH + question()):
        assert fields_of(decode, value, 7).fields == {"text": "Hi", "user": 5}
    by_id = decoder_of(IntakeRules(**one, schema={"7": str(path)}))
    for decoder, value in ((by_id, question()), (decode, b"\xff" * 9), (decode, b'{"text": "Hi"}')):
        with pytest.raises(Exception, match=r"framing|not Protobuf"):
            fields_of(decoder, value)
