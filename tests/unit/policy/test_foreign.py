"""The tables `intake` and `egress`: all their mistakes, each with what may stand there."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.policy.check import checked, read_policy
from app.settings import Settings
from app.wire.ids import MAX_USER_LENGTH

SETTINGS = Settings(_env_file=None)
CONTRACT = """
[[intake]]
topic = "user-queries"
fields = { user_id = "userId", prompt = "text" }
[[intake]]
topic = "llm-requests"
fields = { request_id = "id", prompt = "prompt", max_tokens = "max_tokens" }
user_id = "blog"
[[intake]]
topic = "logs"
user_id = "*"
templates = { prompt = "{event}: {query}" }
[[egress]]
topic = "cs-responses"
fields = { userId = "user_id", prompt = "prompt", completion = "answer" }
[[egress]]
topic = "cs-responses"
on = ["error"]
fields = { userId = "user_name", at = "source.when.at", desk = "metadata.desk", why = "error.message" }
[[egress]]
topic = "llm-tokens"
per = "token"
fields = { id = "request_id", index = "index", token = "text", epoch = "epoch", end = "finish_reason" }
[[egress]]
topic = "llm-responses"
intake = "llm-requests"
fields = { request_id = "request_id", response = "answer" }
"""


def policy(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "policy.toml"
    path.write_text(text)
    return path


def test_the_tables_are_read(tmp_path: Path) -> None:
    read = read_policy(Settings(_env_file=None, policy=policy(tmp_path, CONTRACT)))
    assert [rules.topic for rules in read.intake] == ["user-queries", "llm-requests", "logs"]
    assert [rules.intake for rules in read.egress] == [None, None, None, "llm-requests"]
    assert checked(policy(tmp_path, CONTRACT), SETTINGS)[1] == []


@pytest.mark.parametrize("schema", ['"asked.avsc"', '{ 7 = "one.avsc", 9 = "two.avsc" }'])
def test_a_schema_is_a_file_or_one_for_each_id(tmp_path: Path, schema: str) -> None:
    text = f'[[intake]]\ntopic = "t"\nfields = {{ prompt = "x" }}\nformat = "avro"\nschema = {schema}'
    (rules,) = read_policy(Settings(_env_file=None, policy=policy(tmp_path, text))).intake
    assert rules.schema in ("asked.avsc", {"7": "one.avsc", "9": "two.avsc"})


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        (
            '[[intake]]\ntopic = "t"\nfields = { prompt = "x" }\nformat = "avro"\nschema = { one = "a.avsc" }',
            "intake[0]: schema: a table has ids",
        ),
        ('[[intake]]\ntopic = "t"\nfields = { prompt = "x" }\nformat = "avro"\nschema = 7', "intake[0].schema: "),
        ('[[intake]]\ntopic = "t"', "fields: needs one of prompt, messages"),
        ('[[intake]]\ntopic = "t"\nfields = { promt = "x", prompt = "x" }', "did you mean 'prompt'?"),
        ('[[intake]]\ntopic = "t"\nfields = { user_id = "x" }', "fields: needs one of prompt, messages"),
        ('[[intake]]\ntopic = "parley-ended-changelog"\nfields = { prompt = "x" }', "a topic of Parley's own"),
        ('[[egress]]\ntopic = "__consumer_offsets"\nfields = { a = "answer" }', "a topic of Kafka's own"),
        (f'[[intake]]\ntopic = "t"\nfields = {{ prompt = "x" }}\ntenant = "{"a" * MAX_USER_LENGTH}"', "user_id: must"),
        (
            f'[[intake]]\ntopic = "t"\nfields = {{ prompt = "x" }}\ntenant = "a"\nuser_id = "{"u" * MAX_USER_LENGTH}"',
            "user_id: must have 1-",
        ),
        (
            f'[[intake]]\ntopic = "t"\nfields = {{ prompt = "x" }}\ntenant = "{"a" * 64}"\nuser_id = "*"',
            "user_id: must have 1-",
        ),
        (
            '[[intake]]\ntopic = "t"\nfields = { prompt = "x" }\nuser_id = "b/u"\nconstants = { tenant = "a" }',
            "tenant is 'a', and the user_id belongs to 'b'",
        ),
        ('[[intake]]\ntopic = "a b"\nfields = { prompt = "x" }', "no name of a Kafka topic"),
        ('[[intake]]\ntopic = "t"\nfields = { prompt = "x" }\ntenant = "a/b"', "a tenant has no slash"),
        ('[[intake]]\ntopic = "t"\nfields = { prompt = "x" }\nconstants = { max_tokens = "x" }', "Expected `int"),
        ('[[intake]]\ntopic = "t"\nfields = { prompt = "x" }\nconstants = { request_id = "x" }', "'request_id' is not"),
        ('[[intake]]\ntopic = "t"\nfields = { prompt = "x" }\nuser = "x"', "did you mean 'user_id'?"),
        ('[[egress]]\ntopic = "t"\nfields = {}', "fields: is empty"),
        ('[[egress]]\ntopic = "t"\nfields = { a = "anser" }', "did you mean 'answer'?"),
        ('[[egress]]\ntopic = "t"\nfields = { a = "private" }', "'private' is not known"),
        ('[[egress]]\ntopic = "t"\nfields = { a = "usage.tokens" }', "there are cached_tokens, completion_tokens"),
        ('[[egress]]\ntopic = "t"\nfields = { a = "answer.x" }', "there are none"),
        ('[[egress]]\ntopic = "t"\nfields = { a = "index" }', "'index' is not known"),
        ('[[egress]]\ntopic = "t"\nper = "token"\nfields = { a = "answer" }', "'answer' is not known"),
        ('[[egress]]\ntopic = "t"\nper = "token"\nfields = { a = "notice" }', "'notice' is not known"),
        ('[[egress]]\ntopic = "t"\nper = "token"\nfields = { a = "error.why" }', "there are code, message"),
        *(
            (f'[[intake]]\ntopic = "i"\nfields = {{ prompt = "b.q" }}\n[[egress]]\ntopic = "t"\n{text}', why)
            for text, why in (
                ('format = "avro"\nfields = { a = "answer" }', "egress[0]: schema: is for format = 'avro'"),
                ('message = "M"\nfields = { a = "answer" }', "egress[0]: message: is for format = 'protobuf'"),
                (
                    'format = "avro"\nschema = { 1 = "a", 2 = "b" }\nfields = { a = "answer" }',
                    "records are written by one schema, so the table has one id",
                ),
                ('format = "avro"\nschema = { 4294967296 = "a" }\nfields = { a = "answer" }', "ids of schemas"),
                ('on = []\nfields = { a = "answer" }', "egress[0]: on: names 'done', 'error' or both"),
                ('on = ["done", "done"]\nfields = { a = "answer" }', "egress[0]: on: names"),
                ('on = ["ended"]\nfields = { a = "answer" }', 'egress[0].on[0]: is "ended"; valid are "done", "error"'),
                ('per = "token"\non = ["error"]\nfields = { a = "text" }', "so 'done' belongs there"),
                ('fields = { a = "source" }', "'source' needs the name of a field, as source.NAME"),
                ('fields = { a = "metadata." }', "'metadata' needs the name of a field"),
                ('fields = { a = "sorce.x" }', "'sorce' is not known; did you mean 'source'?"),
                ('fields = { a = "user_name.x" }', "'user_name' has no field 'x'"),
                ('fields = { a = "error.why" }', "there are code, message"),
                ('fields = { a = "source.b.q.x" }\n[guard]\npii = "redact"', "egress[0].fields: 'source.b.q.x' would"),
                ('fields = { a = "source.b" }\n[guard]\npii = "redact"', "models read it of the records of 'i'"),
            )
        ),
        (
            '[[egress]]\ntopic = "t"\nfields = { a = "source.x" }',
            "'source.x' is a field of an intake's record",
        ),
        ('[[egress]]\ntopic = "t"\nper = "turn"\nfields = { a = "answer" }', "egress[0].per"),
        *(
            (f'[[intake]]\ntopic = "t"\nuser_id = "*"\nfields = {{ {fields} }}\ntemplates = {{ {templates} }}', why)
            for fields, templates, why in (
                ("", 'promt = "{a}"', "templates: 'promt' is not known; did you mean 'prompt'?"),
                ("", 'messages = "{a}"', "templates: 'messages' is not known"),
                ("", 'prompt = "{a} {b"', "templates.prompt: the '{' at character 5 belongs to no field"),
                ("", 'prompt = "{a} {}"', "templates.prompt: the '{' at character 5 belongs to no field"),
                ("", 'prompt = "a } b {c}"', "templates.prompt: the '}' at character 3"),
                ("", 'prompt = "{{a}}"', "templates.prompt: names no field"),
                ("", "prompt = 7", "intake[0].templates.prompt: expected `str`"),
                ('prompt = "a"', 'prompt = "{a}"', "templates: prompt is in fields or constants, too"),
                ('messages = "a"', 'prompt = "{a}"', "so none can have messages"),
                ("", f'prompt = "{"x" * 70_000}{{a}}"', "intake[0].templates: the prompt has 70000 bytes, the limit"),
            )
        ),
        (
            '[guard]\npii = "redact"\n[[egress]]\ntopic = "t"\nper = "token"\nfields = { a = "text" }',
            "egress[0].per: 'token' would keep on 't' what guard.pii = 'redact' keeps nowhere",
        ),
        ('[[egress]]\ntopic = "t"\nintake = "llm"\nfields = { a = "answer" }', "there is no intake of 'llm'"),
        (CONTRACT + '[[intake]]\ntopic = "llm-requests"\nfields = { prompt = "x" }', "two tables read 'llm-requests'"),
        (CONTRACT + '[[egress]]\ntopic = "llm-requests"\nfields = { a = "answer" }', "would answer the answers"),
        (CONTRACT + '[[egress]]\ntopic = "cs-responses"\nfields = { a = "answer" }', "the same answers"),
    ],
)
def test_a_mistake_is_told_with_what_may_stand_there(tmp_path: Path, text: str, mistake: str) -> None:
    found = checked(policy(tmp_path, text), SETTINGS)[1]
    assert any(mistake in line for line in found), found
