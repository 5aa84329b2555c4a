"""A foreign record as a request, and a turn as a foreign record."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from app.foreign.formats import decode_json, fields_of
from app.foreign.mapping import request_of
from app.foreign.passed import Passed, values_of
from app.foreign.source import ForeignSource, source_of
from app.policy.foreign import EgressRules, IntakeRules
from app.wire.error import WireError
from app.wire.ids import is_request_id
from app.wire.turn import Turn
from models.interface.generation import FinishReason, Usage

AT = ForeignSource("llm-requests", 3, 17, 1_700_000_000_000)
PLAIN = IntakeRules(topic="user-queries", fields={"user_id": "userId", "prompt": "text"})


def made(rules: IntakeRules, record: Any, key: bytes | None = None) -> dict[str, Any]:
    value = record if isinstance(record, bytes | None) else json.dumps(record).encode()
    request = request_of(rules, fields_of(decode_json, value).fields, key, AT, max_prompt_bytes=1000)
    fields: dict[str, Any] = json.loads(request.value)
    assert fields["user_id"] == request.user_id
    return fields


def refusal(rules: IntakeRules, record: Any, key: bytes | None = None) -> str:
    with pytest.raises(WireError) as caught:
        made(rules, record, key)
    return caught.value.message


def test_names_are_translated_and_what_is_not_named_is_left() -> None:
    request = made(PLAIN, {"userId": "123", "text": "Hi", "page": 7})
    assert request == {"user_id": "123", "prompt": "Hi", "request_id": "llm-requests-3-17"}


def test_the_record_is_the_conversation_where_no_record_names_a_user() -> None:
    rules = IntakeRules(topic="t", fields={"request_id": "id", "prompt": "prompt"}, user_id="blog")
    assert made(rules, {"id": "abc", "prompt": "Hi"}, b"a key") == {
        "request_id": "abc",
        "user_id": "blog",
        "conversation_id": "abc",
        "prompt": "Hi",
    }


def test_an_id_that_cannot_be_one_is_refused_under_the_name_that_its_sender_wrote() -> None:
    rules = IntakeRules(topic="t", fields={"request_id": "id", "prompt": "prompt"}, user_id="blog")
    for wrong in ("a b", "a" * 65, "a" * 300, ""):
        assert refusal(rules, {"id": wrong, "prompt": "Hi"}).startswith("`id` (request_id): must be 1-64 of A-Z a-z")
    assert refusal(rules, {"id": ["a"], "prompt": "Hi"}).startswith("`id` (request_id): expected `str`")


def test_without_a_name_or_a_constant_the_key_is_the_user() -> None:
    rules = IntakeRules(topic="t", fields={"prompt": "prompt"})
    assert made(rules, {"prompt": "Hi"}, b"ann")["user_id"] == "ann"
    assert "conversation_id" not in made(rules, {"prompt": "Hi"}, b"ann")
    assert refusal(rules, {"prompt": "Hi"}) == "the record has no key (user_id); it has `prompt`"
    assert "user_id" in refusal(rules, {"prompt": "Hi"}, b"\xff")


def test_a_star_makes_a_user_of_each_records_place() -> None:
    rules = IntakeRules(topic="t", fields={"request_id": "id", "prompt": "p"}, user_id="*", tenant="shop")
    request = made(rules, {"id": "abc", "p": "Hi"}, b"a key")
    assert (request["user_id"], request["conversation_id"]) == ("shop/llm-requests-3-17", "abc")
    named = IntakeRules(topic="t", fields={"user_id": "u", "prompt": "p"}, user_id="*")
    assert made(named, {"u": "ann", "p": "Hi"})["user_id"] == "ann"
    assert made(named, {"u": None, "p": "Hi"})["user_id"] == "llm-requests-3-17"


LOG = IntakeRules(topic="t", user_id="*", templates={"prompt": "{{{level}}} {event}: {body.query}"})


@pytest.mark.parametrize(
    ("record", "prompt"),
    [
        ({"event": "down", "level": 3, "body": {"query": "why?"}}, "{3} down: why?"),
        (b'{"event": {"a": 1.5}, "level": true, "body.query": "{event} {0!r}"}', '{true} {"a": 1.5}: {event} {0!r}'),
        (b'{"event": "", "level": 12345678901234567890123, "body": {"query": ["\\u00e9\\n"]}}',
         '{12345678901234567890123} : ["\\u00e9\\n"]'),
        ({"event": "\u00e9\n", "level": 1e3, "body": {"query": '"'}}, '{1000.0} \u00e9\n: "'),
    ],
)  # fmt: skip
def test_a_template_puts_a_prompt_together(record: Any, prompt: str) -> None:
    assert made(LOG, record)["prompt"] == prompt


@pytest.mark.parametrize(
    ("record", "cause"),
    [
        ({"event": "down", "level": 3}, "the record has no `body.query` (prompt); it has `event` and `level`"),
        (
            {"event": None, "body": 7},
            "`event` (prompt) is null; the record has no `level` (prompt) and no `body.query`",
        ),
        ({"event": "x" * 1000, "level": 3, "body": {"query": "y"}}, "1007 bytes"),
        (b'{"event": "\\ud800", "level": 3, "body": {"query": "y"}}', "malformed"),
    ],
)
def test_a_record_that_a_template_lacks_something_of_says_what(record: Any, cause: str) -> None:
    assert cause in refusal(LOG, record)


def test_ids_can_be_put_together_too() -> None:
    rules = IntakeRules(
        topic="t", fields={"prompt": "p"}, templates={"user_id": "{app}-{user}", "request_id": "{app}.{n}"}
    )
    request = made(rules, {"p": "Hi", "app": "shop", "user": 7, "n": 1})
    assert (request["user_id"], request["request_id"]) == ("shop-7", "shop.1")
    assert "`{app}.{n}` (request_id): must be" in refusal(rules, {"p": "Hi", "app": "a b", "user": 7, "n": 1})


def test_names_lead_into_objects() -> None:
    rules = IntakeRules(topic="t", fields={"prompt": "body.text", "user_id": "body.from.id"})
    assert made(rules, {"body": {"text": "Hi", "from": {"id": 7}}})["user_id"] == "7"
    assert made(rules, {"body.text": "Ho", "body": {"text": "Hi", "from": {"id": "a"}}})["prompt"] == "Ho"
    assert refusal(rules, {"body": "text"}) == (
        "the record has no `body.text` (prompt) and no `body.from.id` (user_id); it has `body`"
    )


def test_a_record_that_names_a_value_has_it_in_place_of_the_constant() -> None:
    rules = IntakeRules(
        topic="t", fields={"prompt": "p", "max_tokens": "n"}, user_id="u", constants={"max_tokens": 9, "model": "small"}
    )
    assert made(rules, {"p": "Hi"})["max_tokens"] == 9
    assert made(rules, {"p": "Hi", "n": 3})["max_tokens"] == 3
    assert made(rules, {"p": "Hi", "n": None})["model"] == "small"


@pytest.mark.parametrize("user", ["nina", "other/nina", "acme/nina", 5])
def test_the_users_of_a_tenants_topic_are_its_own(user: Any) -> None:
    rules = IntakeRules(topic="t", fields={"prompt": "p", "user_id": "u"}, tenant="acme")
    request = made(rules, {"p": "Hi", "u": user})
    assert (request["user_id"], request["tenant"]) == (f"acme/{user}", "acme")


@pytest.mark.parametrize(
    ("record", "cause"),
    [
        (None, "no value"),
        (b"{not json", "malformed"),
        (b"[1]", "Expected `object`"),
        (b'{"text": "\xff"}', "not UTF-8"),
        (b'{"userId": "u", "text": "x", "more": ' + b"[" * 99 + b"]" * 99 + b"}", "nested deeper"),
        (b"", "the value is empty"),
        (b" \n", "the value is empty"),
        ({"userId": "u", "text": 7}, "`text` (prompt): expected `str | null`, got `int`"),
        ({"userId": "u", "text": ["a"]}, "`text` (prompt): expected `str | null`, got `array`"),
        ({"userId": "u", "text": ""}, "`text` (prompt): is empty"),
        ({"userId": "u", "text": None}, "`text` (prompt) is null"),
        ({"userId": True, "text": "Hi"}, "`userId` (user_id): expected `str`, got `bool`"),
        ({"userId": 2.5, "text": "Hi"}, "`userId` (user_id): expected `str`, got `float`"),
        ({"userId": [], "text": "Hi"}, "`userId` (user_id): expected `str`, got `array`"),
        ({"userId": False, "text": "Hi"}, "`userId` (user_id): expected `str`, got `bool`"),
        ({"userId": "", "text": "Hi"}, "`userId` (user_id) is empty"),
        ({"userId": None, "text": "Hi"}, "`userId` (user_id) is null"),
        (
            {"userId": None, "Text": 1},
            "`userId` (user_id) is null; the record has no `text` (prompt); it has `userId` and",
        ),
        ({"userId": "x" * 129, "text": "Hi"}, "`userId` (user_id): must have 1-128 characters"),
        ({"userId": "u", "text": "x" * 1001}, "1001 bytes"),
        ({"userid": "u", "Text": "Hi"}, "no `text` (prompt) and no `userId` (user_id); it has `userid` and `Text`"),
    ],
)
def test_what_gives_no_request_says_why(record: Any, cause: str) -> None:
    assert cause in refusal(PLAIN, record)


@pytest.mark.parametrize(
    ("rules", "record", "message"),
    [
        (
            {"prompt": "body.text"},
            {"body": {"text": ["a"]}},
            "`body.text` (prompt): expected `str | null`, got `array`",
        ),
        (
            {"messages": "body.said"},
            {"body": {"said": [{"role": "user", "content": 7}]}},
            "`body.said[0].content` (messages): expected `str | null`, got `int`",
        ),
        (
            {"prompt": "p", "stop_when": "halt"},
            {"p": "Hi", "halt": {"over": 0, "mean_logprob_below": -1}},
            "`halt.over`",
        ),
        ({"prompt": "p", "max_tokens": "n"}, {"p": "Hi", "n": 0}, "`n` (max_tokens): must be at least 1"),
        (
            {"prompt": "p", "priority": "urgency"},
            {"p": "Hi", "urgency": "x"},
            "`urgency` (priority): invalid enum value",
        ),
        ({"prompt": "p", "tenant": "org"}, {"p": "Hi", "org": "b" * 300}, "`org` (tenant): "),
        ({"prompt": "p", "request_id": "id"}, {"p": "Hi", "id": {}}, "`id` (request_id): expected `str`, got `object`"),
        ({"prompt": "p", "request_id": "id"}, {"p": "Hi", "id": 1.5}, "`id` (request_id): expected `str`, got `float`"),
        (
            {"prompt": "p", "messages": "m"},
            {"p": "Hi", "m": []},
            "the record has `p` (prompt) and `m` (messages): a request",
        ),
    ],
)
def test_a_refusal_names_what_the_sender_wrote(rules: dict[str, str], record: Any, message: str) -> None:
    told = refusal(IntakeRules(topic="t", fields=rules, user_id="u"), record)
    assert told.startswith(message)
    assert "$" not in told


@pytest.mark.parametrize(
    ("key", "message"),
    [
        (None, "the record has no key (user_id); it has `p`"),
        (b"", "key (user_id) is empty"),
        (b"\xff", "key (user_id) is not UTF-8"),
        (b"x" * 129, "key (user_id): must have 1-128 characters"),
    ],
)
def test_a_key_that_names_no_user_is_told(key: bytes | None, message: str) -> None:
    assert refusal(IntakeRules(topic="t", fields={"prompt": "p"}), {"p": "Hi"}, key) == message


def test_a_constant_that_is_wrong_is_the_intakes() -> None:
    rules = IntakeRules(topic="t", fields={"prompt": "p"}, user_id="u", constants={"max_tokens": 0})
    assert refusal(rules, {"p": "Hi"}).startswith("the intake's constant max_tokens: must be at least 1")


def test_a_place_is_an_id_however_long_the_topics_name_is() -> None:
    assert AT.request_id == "llm-requests-3-17"
    ids = {ForeignSource("t" * length, 3, 17, 0).request_id for length in range(1, 249)}
    assert all(map(is_request_id, ids))
    assert len({ForeignSource(f"{'t' * 200}{name}", 3, 17, 0).request_id for name in "abc"}) == 3


def test_a_source_is_read_from_its_header() -> None:
    assert source_of([("x", b""), AT.header]) == AT
    for value in (None, b"", b"a:1:2", b"a:b:c:d", b"\xff:1:2:3", b"a:1:2:3:4"):
        assert source_of([("intake-from", value)]) is None


def test_a_turn_is_told_by_others_names() -> None:
    turn = Turn(
        request_id="r",
        user_id="ann",
        conversation_id="default",
        prompt="Hi",
        answer="Ho",
        finish_reason=FinishReason.STOP,
        usage=Usage(1, 2),
        model_version="m",
        created_at=5,
    )
    rules = EgressRules(
        topic="t", fields={"userId": "user_id", "completion": "answer", "n": "usage.completion_tokens", "m": "tenant"}
    )
    assert values_of(rules, msgspec.to_builtins(turn), Passed()) == {
        "userId": "ann",
        "completion": "Ho",
        "n": 2,
        "m": None,
    }


def test_a_record_without_fields_says_what_it_lacks() -> None:
    assert refusal(PLAIN, {}, b"ann") == "the record has no `text` (prompt); it has no fields"


def test_a_field_that_nobody_has_named_is_no_value_and_a_named_one_is_bounded() -> None:
    lists = b"[" + b"[]," * 30_000 + b"[]]"
    record = b'{"userId": "ann", "text": "Hi", "body": {"x": %s}, "x": %s}' % (lists, lists)
    assert made(PLAIN, record)["prompt"] == "Hi"
    named = IntakeRules(topic="t", fields={"user_id": "userId", "prompt": "text", "metadata": "body"})
    assert refusal(named, record) == "has more than 25000 objects and lists"
    brackets = IntakeRules(topic="t", fields={"user_id": "userId", "metadata": "body", "prompt": "text"})
    text = json.dumps({"userId": "ann", "text": "Hi", "body": {"x": "[" * 200}}).encode()
    assert made(brackets, text)["metadata"] == {"x": "[" * 200}
