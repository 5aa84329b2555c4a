"""Avro and Protobuf behind a schema registry's framing, as fastavro and protobuf write them."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import fastavro
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from app.foreign.formats import decode_json, decoders_of, fields_of
from app.foreign.mapping import request_of
from app.foreign.source import Source
from app.policy.file import Policy, PolicyError
from app.policy.foreign import IntakeRules
from app.wire.error import WireError

SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "Question",
    "namespace": "shop",
    "fields": [
        {"name": "user", "type": "long"},
        {"name": "text", "type": ["null", "string"], "default": None},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "body", "type": {"type": "record", "name": "Body", "fields": [{"name": "raw", "type": "bytes"}]}},
    ],
}
FRAME = b"\0\0\0\0\x07"
ROW = {"user": 5, "text": "Hi", "tags": ["a"], "body": {"raw": b"\xff"}}


def decoder(rules: IntakeRules) -> Any:
    return decoders_of(Policy(intake=(rules,)))[rules.topic]


def avro(folder: Path, schema: Any = SCHEMA) -> Any:
    path = folder / "question.avsc"
    path.write_text(schema if isinstance(schema, str) else json.dumps(schema))
    return decoder(IntakeRules(topic="t", fields={"prompt": "text"}, format="avro", schema=str(path)))


def written(row: dict[str, Any]) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(SCHEMA), row)
    return out.getvalue()


def test_avro_is_a_request(tmp_path: Path) -> None:
    fields = fields_of(avro(tmp_path), FRAME + written(ROW))
    assert fields == ROW
    rules = IntakeRules(topic="t", fields={"prompt": "text", "user_id": "user"})
    made = request_of(rules, fields, None, Source("t", 0, 1, 0), max_prompt_bytes=100)
    assert (made.user_id, json.loads(made.value)["prompt"]) == ("5", "Hi")


@pytest.mark.parametrize(
    "value", [None, b"", b"\0\0", written(ROW), b"{}", FRAME, FRAME + b"\xff" * 20, FRAME + written(ROW) + b"x"]
)
def test_bytes_that_are_no_such_avro_say_so(tmp_path: Path, value: bytes | None) -> None:
    with pytest.raises(WireError):
        fields_of(avro(tmp_path), value)


def test_every_cut_of_a_record_is_refused(tmp_path: Path) -> None:
    decode, whole = avro(tmp_path), FRAME + written(ROW)
    for length in range(len(whole)):
        with pytest.raises(WireError):
            fields_of(decode, whole[:length])


@pytest.mark.parametrize(
    ("schema", "cause"),
    [
        ("{", "no Avro schema"),
        ('{"type": "string"}', "no Avro record"),
        ({**SCHEMA, "fields": [{"name": "a", "type": "unknown"}]}, "no Avro schema"),
        ({**SCHEMA, "fields": [{"name": "a", "type": ["null", "Question"]}]}, "contains itself"),
        ({**SCHEMA, "fields": [{"name": "a", "type": {"type": "array", "items": "shop.Question"}}]}, "contains itself"),
        ({**SCHEMA, "fields": [{"name": "a", "type": {"type": "array", "items": "null"}}]}, "take no bytes"),
        (
            {
                **SCHEMA,
                "fields": [
                    {"name": "e", "type": {"type": "record", "name": "E", "fields": []}},
                    {"name": "a", "type": {"type": "array", "items": "E"}},
                ],
            },
            "take no bytes",
        ),
    ],
)
def test_a_schema_that_cannot_be_used_is_refused_with_its_cause(tmp_path: Path, schema: Any, cause: str) -> None:
    with pytest.raises(PolicyError, match=cause):
        avro(tmp_path, schema)


def described() -> descriptor_pb2.FileDescriptorSet:
    """`message Other {}` and `message Question { string text = 1; int64 user = 2; Body body = 3; }` with a message."""
    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="shop.proto", package="shop", syntax="proto3")
    file.message_type.add(name="Other")
    question = file.message_type.add(name="Question")
    question.field.add(name="text", number=1, type=kinds.TYPE_STRING, label=kinds.LABEL_OPTIONAL)
    question.field.add(name="user", number=2, type=kinds.TYPE_INT64, label=kinds.LABEL_OPTIONAL)
    question.field.add(
        name="body", number=3, type=kinds.TYPE_MESSAGE, type_name=".shop.Body", label=kinds.LABEL_OPTIONAL
    )
    body = file.message_type.add(name="Body")
    body.field.add(name="raw", number=1, type=kinds.TYPE_BYTES, label=kinds.LABEL_OPTIONAL)
    return descriptor_pb2.FileDescriptorSet(file=[file])


def protobuf(folder: Path, message: str = "shop.Question") -> Any:
    path = folder / "shop.desc"
    path.write_bytes(described().SerializeToString())
    rules = IntakeRules(topic="t", fields={"prompt": "text"}, format="protobuf", schema=str(path), message=message)
    return decoder(rules)


def question() -> bytes:
    pool = descriptor_pool.DescriptorPool()
    pool.Add(described().file[0])
    kind: Any = message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Question"))
    content: bytes = kind(text="Hi", user=5, body={"raw": b"\xff"}).SerializeToString()
    return content


@pytest.mark.parametrize("path", [b"\0", b"\x02\x02", b"\x04\x02\x80\x01"])
def test_protobuf_is_a_request_wherever_its_message_stands(tmp_path: Path, path: bytes) -> None:
    fields = fields_of(protobuf(tmp_path), FRAME + path + question())
    assert fields == {"text": "Hi", "user": 5, "body": {"raw": b"\xff"}}


@pytest.mark.parametrize("value", [b"\0" + b"\xff" * 9, b"", b"\xff" * 9, b"\x80", b"\x04\x02"])
def test_bytes_that_are_no_such_protobuf_say_so(tmp_path: Path, value: bytes) -> None:
    with pytest.raises(WireError):
        fields_of(protobuf(tmp_path), FRAME + value)


def test_a_set_of_descriptors_has_to_be_one_and_to_have_the_message(tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match=r"no message 'shop\.Answer'"):
        protobuf(tmp_path, "shop.Answer")
    (tmp_path / "text").write_text("message Question {}")
    for name, cause in (("text", "descriptor_set_out"), ("missing", "No such file")):
        rules = IntakeRules(
            topic="t", fields={"prompt": "p"}, format="protobuf", schema=str(tmp_path / name), message="m"
        )
        with pytest.raises(PolicyError, match=cause):
            decoder(rules)


def test_json_needs_no_schema() -> None:
    assert fields_of(decode_json, b'{"a": 1}') == {"a": 1}
