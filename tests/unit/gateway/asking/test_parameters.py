"""No parameter of OpenAI's or vLLM's chat API is dropped in silence."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from openai.types.chat.completion_create_params import CompletionCreateParamsBase

from app.gateway import openai
from app.gateway.asking.parameters import IGNORED, check_parameters
from app.gateway.edge.errors import ApiError
from app.gateway.openai.chat_body import ChatBody
from app.wire.codec import UNSUPPORTED

HONOURED = ChatBody.__struct_encode_fields__


def check(**given: Any) -> list[str]:
    raw = msgspec.json.decode(msgspec.json.encode(given), type=dict[str, msgspec.Raw])
    return check_parameters(raw, HONOURED)


def test_every_parameter_of_openais_client_is_in_the_table() -> None:
    known = {*HONOURED, *IGNORED, *UNSUPPORTED}
    assert set(CompletionCreateParamsBase.__annotations__) - known == set()


def test_an_unknown_parameter_is_named_with_the_one_that_is_meant() -> None:
    assert check(max_toks=3, temperature=1.0, weather="fine", service_tier="auto") == [
        "service_tier",
        "max_toks (did you mean max_tokens?)",
        "weather",
    ]


def test_no_parameter_is_honoured_and_ignored() -> None:
    assert not set(HONOURED) & set(IGNORED)
    assert not set(IGNORED) & set(UNSUPPORTED)


@pytest.mark.parametrize("name", sorted(set(UNSUPPORTED) - set(HONOURED)))
def test_an_unsupported_parameter_is_refused_by_name_unless_its_value_asks_for_nothing(name: str) -> None:
    with pytest.raises(ApiError) as refused:
        check(**{name: ["something"]})
    assert (refused.value.status, refused.value.param) == (400, name)
    for neutral in UNSUPPORTED[name]:
        assert check(**{name: neutral}) == []


@pytest.mark.parametrize("given", [{"reasoning": {"effort": None, "summary": None}}, {"web_search_options": None}])
def test_an_option_whose_parts_are_all_null_asks_for_nothing(given: dict[str, Any]) -> None:
    assert check(**given) == []


def test_what_has_no_effect_is_reported() -> None:
    assert check(messages=[], service_tier="flex", my_own=1, prediction=None) == ["service_tier", "my_own"]


def test_the_page_lists_every_parameter() -> None:
    page = (Path(*openai.__path__) / "README.md").read_text()
    honoured, _, rest = page.partition("Honoured in chat completions:")[2].partition("| ignored |")
    ignored, _, refused = rest.partition("Refused:")
    names = re.compile(r"`([a-z_]+)`")
    assert set(names.findall(honoured)) == set(HONOURED)
    rows = re.findall(r"\| (`.+`) \| (.+) \|", ignored)
    assert {name: why for listed, why in rows for name in names.findall(listed)} == dict(IGNORED)
    assert set(names.findall(refused.partition(".\n")[0])) == set(UNSUPPORTED) - set(HONOURED)
