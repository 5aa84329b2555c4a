"""The client packages know the fields of a request, and nothing of `app`."""

from __future__ import annotations

import inspect
import logging
import re
from pathlib import Path

import pytest
from parley_client import Answer, AsyncParley, Event, Parley, UnreachableError
from parley_client.fields import FIELDS, check_fields

from app.gateway.asking.ask import AskBody
from app.local.ports import free_port
from app.wire.request import Request

NPM = Path(__file__).parents[3] / "deploy" / "packages" / "npm" / "src" / "fields.ts"


def test_both_packages_know_every_field_of_a_request() -> None:
    fields = {*Request.__struct_encode_fields__, *AskBody.__struct_encode_fields__}
    assert fields == FIELDS
    written = re.search(r"`([^`]+)`", NPM.read_text())
    assert written is not None
    assert {*written[1].split()} == fields


def test_both_packages_have_the_same_calls() -> None:
    python = {
        name for name, one in vars(AsyncParley).items() if not name.startswith("_") and inspect.iscoroutinefunction(one)
    }
    source = (NPM.parent / "client.ts").read_text()
    written = {*re.findall(r"^  async (\w+)\(", source[source.index("class Parley") :], re.MULTILINE)}
    assert written == python | {"peek"}
    assert {"edit", "fork", "regenerate", "versions"} < python <= vars(Parley).keys()


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("max_toks", "max_tokens"),
        ("maxTokens", "max_tokens"),
        ("temprature", "temperature"),
        ("converstion_id", "conversation_id"),
    ],
)
def test_a_misspelt_field_is_refused_with_the_one_that_is_meant(name: str, meant: str) -> None:
    check_fields(["max_tokens", "seed"])
    with pytest.raises(TypeError, match=f"ask: '{name}' is no field of a request; did you mean '{meant}'"):
        check_fields(["seed", name])


def test_a_field_like_no_other_is_refused_too() -> None:
    with pytest.raises(TypeError, match="'zzz' is no field of a request; the fields are in"):
        check_fields(["zzz"])


def test_an_answer_is_shown_in_one_line() -> None:
    answer: Answer[Event] = Answer("ann", "r1")
    for index in range(1000):
        answer.append(Event({"type": "token", "index": index, "epoch": 1, "tokens": [1], "text": "a\n"}))
    shown = repr("a\n" * 30 + "...")
    assert repr(answer) == f"Answer(request_id='r1', text={shown}, under way, 1000 tokens)"
    answer.append(Event({"type": "done", "index": 1000, "epoch": 1, "finish_reason": "length"}))
    assert repr(answer).endswith("length, 1000 tokens)")


async def test_a_gateway_that_is_not_there_is_told_once_and_long_before_patience_ends(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("parley_client.http._TOLD_AFTER_S", 0.2)
    with caplog.at_level(logging.WARNING), pytest.raises(UnreachableError):
        async with AsyncParley(f"http://127.0.0.1:{free_port()}", patience_s=1.5) as parley:
            await parley.ask("hello")
    (line,) = caplog.messages
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/?: nothing was heard for \d s: .+; trying again", line)
