"""Avro and Protobuf behind a schema registry's framing, as fastavro and protobuf write them."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import fastavro
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from app.foreign.formats import decode_json, decoder_of, fields_of, foreign_topics
from app.foreign.mapping import request_of
from app.foreign.source import ForeignSource
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
    return foreign_topics(Policy(intake=(rules,))).intakes[rules.topic].decode


ALL = {"prompt": "text", "user_id": "user", "stop": "tags", "metadata": "body"}


def avro(folder: Path, schema: Any = SCHEMA, fields: dict[str, str] = ALL) -> Any:
    path = folder / "question.avsc"
    path.write_text(schema if isinstance(schema, str) else json.dumps(schema))
    return decoder(IntakeRules(topic="t", fields=fields, format="avro", schema=str(path)))


def test_a_field_to_repeat_that_no_schema_has_is_a_mistake_of_the_policy(tmp_path: Path) -> None:
    (tmp_path / "shop.desc").write_bytes(described().SerializeToString())
    (tmp_path / "question.avsc").write_text(json.dumps(SCHEMA))
    both = [("avro", "question.avsc", None), ("protobuf", "shop.desc", "shop.Question")]
    for kind, file, message in both:
        one = {"topic": "t", "fields": {"prompt": "text"}, "format": kind, "message": message}
        for schema in (str(tmp_path / file), {"1": str(tmp_path / file)}):
            assert decoder_of(IntakeRules(**one, schema=schema), ["user", "body.raw"])
            with pytest.raises(PolicyError, match=r"source\.usr, which is no field of the schema; there are .*user"):
                decoder_of(IntakeRules(**one, schema=schema), ["user", "usr"])


def written(row: dict[str, Any]) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(SCHEMA), row)
    return out.getvalue()


def test_avro_is_a_request(tmp_path: Path) -> None:
    fields = fields_of(avro(tmp_path), FRAME + written(ROW)).fields
    assert fields == ROW
    rules = IntakeRules(topic="t", fields={"prompt": "text", "user_id": "user"})
    made = request_of(rules, fields, None, ForeignSource("t", 0, 1, 0), max_prompt_bytes=100)
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
    item = file.message_type.add(name="Item")
    question.field.add(
        name="items", number=4, type=kinds.TYPE_MESSAGE, type_name=".shop.Item", label=kinds.LABEL_REPEATED
    )
    for number, name in ((5, "left"), (6, "seed")):
        question.oneof_decl.add(name=f"of_{name}")
        at = len(question.oneof_decl) - 1
        question.field.add(name=name, number=number, type=kinds.TYPE_INT64, label=kinds.LABEL_OPTIONAL, oneof_index=at)
    inner = question.nested_type.add(name="Inner")
    for one in (item, inner):
        one.field.add(name="text", number=1, type=kinds.TYPE_STRING, label=kinds.LABEL_OPTIONAL)
    question.field.add(
        name="body", number=3, type=kinds.TYPE_MESSAGE, type_name=".shop.Body", label=kinds.LABEL_OPTIONAL
    )
    body = file.message_type.add(name="Body")
    body.field.add(name="raw", number=1, type=kinds.TYPE_BYTES, label=kinds.LABEL_OPTIONAL)
    return descriptor_pb2.FileDescriptorSet(file=[file])


def protobuf(folder: Path, message: str = "shop.Question", fields: dict[str, str] = ALL) -> Any:
    path = folder / "shop.desc"
    path.write_bytes(described().SerializeToString())
    rules = IntakeRules(topic="t", fields=fields, format="protobuf", schema=str(path), message=message)
    return decoder(rules)


def question() -> bytes:
    pool = descriptor_pool.DescriptorPool()
    pool.Add(described().file[0])
    kind: Any = message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Question"))
    content: bytes = kind(text="Hi", user=5, body={"raw": b"\xff"}).SerializeToString()
    return content


PATH = b"\x02\x02"
"""Of the second message: one number, a one."""


def test_protobuf_is_a_request(tmp_path: Path) -> None:
    fields = fields_of(protobuf(tmp_path), FRAME + PATH + question()).fields
    assert fields == {"text": "Hi", "user": 5, "body": {"raw": b"\xff"}}


@pytest.mark.parametrize("path", [b"\0", b"\x02\0", b"\x02\x04", b"\x04\x02\0", b"\x02\x01", b"\x8c\x01" + b"\0" * 70])
def test_the_path_of_another_message_is_refused(tmp_path: Path, path: bytes) -> None:
    with pytest.raises(WireError, match=r"path|message at"):
        fields_of(protobuf(tmp_path), FRAME + path + question())


def test_the_first_message_has_a_short_path_and_a_long_one_and_a_nested_one_two_numbers(tmp_path: Path) -> None:
    first = protobuf(tmp_path, "shop.Other")
    assert fields_of(first, FRAME + b"\0").fields == fields_of(first, FRAME + b"\x02\0").fields == {}
    nested = protobuf(tmp_path, "shop.Question.Inner", {"prompt": "text"})
    assert fields_of(nested, FRAME + b"\x04\x02\0" + b"\x0a\x02Hi").fields == {"text": "Hi"}


def test_fields_that_nobody_has_named_are_no_values_and_a_choice_stays_one(tmp_path: Path) -> None:
    decode = protobuf(tmp_path, fields={"prompt": "text", "seed": "seed"})
    items = b"\x22\x00" * 30_000
    chosen = b"\x30\x00"  # a zero that is set
    assert fields_of(decode, FRAME + PATH + question() + items + chosen).fields == {"text": "Hi", "seed": 0}
    with pytest.raises(WireError, match="more than 25000 messages"):
        fields_of(protobuf(tmp_path, fields={"metadata": "items"}), FRAME + PATH + question() + items)


def test_avro_has_the_fields_that_are_named_alone_and_so_many_values(tmp_path: Path) -> None:
    assert fields_of(avro(tmp_path, fields={"prompt": "text"}), FRAME + written(ROW)).fields == {"text": "Hi"}
    for fields in (ALL, {"prompt": "text"}):
        with pytest.raises(WireError, match="too many values"):
            fields_of(avro(tmp_path, fields=fields), FRAME + written({**ROW, "tags": [""] * 100_001}))


def test_a_named_type_that_an_unnamed_field_defines_is_read(tmp_path: Path) -> None:
    address = {"type": "record", "name": "Address", "fields": [{"name": "city", "type": "string"}]}
    fields = [{"name": "old", "type": address}, {"name": "new", "type": "Address"}]
    decode = avro(tmp_path, {"type": "record", "name": "Moved", "fields": fields}, {"prompt": "new.city"})
    assert fields_of(decode, FRAME + b"\x02a\x02b").fields["new"] == {"city": "b"}


def framed(schema_id: int) -> bytes:
    return b"\0" + schema_id.to_bytes(4) + written(ROW)


def test_records_of_another_schema_than_the_first_are_refused_with_what_to_write(tmp_path: Path) -> None:
    decode = avro(tmp_path)
    assert fields_of(decode, framed(7)).schema_id == 7
    assert fields_of(decode, framed(7), 7).fields == ROW
    with pytest.raises(WireError) as caught:
        fields_of(decode, framed(9), 7)
    assert 'schema = { 7 = "...", 9 = "..." }' in caught.value.message


def test_a_policy_names_a_file_for_each_schema(tmp_path: Path) -> None:
    swapped = {**SCHEMA, "fields": SCHEMA["fields"][::-1]}
    for name, schema in (("a", SCHEMA), ("b", swapped)):
        (tmp_path / name).write_text(json.dumps(schema))
    files = {"7": str(tmp_path / "a"), "9": str(tmp_path / "b")}
    decode = decoder(IntakeRules(topic="t", fields=ALL, format="avro", schema=files))
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(swapped), ROW)
    for value in (framed(7), b"\0\0\0\0\x09" + out.getvalue()):
        read = fields_of(decode, value, 8)
        assert (read.fields, read.schema_id) == (ROW, None)
    with pytest.raises(WireError, match="id 8; the policy's table `schema` has 7, 9"):
        fields_of(decode, framed(8))


@pytest.mark.parametrize("schema", [{}, {"seven": "a"}, {"-1": "a"}, {"07": "a"}])
def test_a_table_of_schemas_has_their_ids(schema: dict[str, str]) -> None:
    rules = IntakeRules(topic="t", fields=ALL, format="avro", schema=schema)
    assert [one.why for one in rules.mistakes()] == [
        "schema: a table has ids of schemas, which are numbers, and their files"
    ]


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
    assert {name: bytes(raw) for name, raw in fields_of(decode_json, b'{"a": 1}').fields.items()} == {"a": b"1"}
