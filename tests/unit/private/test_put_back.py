"""Values in an answer that arrives in pieces, wherever it is cut, and wherever a next owner goes on."""

from __future__ import annotations

import json
import random

import pytest

from app.private.mask import NO_MASK, Mask
from app.private.put_back import PutBack
from app.private.value import PrivateValue
from models.interface.chat import ModelCall
from models.interface.generation import Delta, End, Failure, FinishReason, StreamEvent, Usage
from models.tools.parser import CallDelta

MASK = Mask(b"s", "u", [PrivateValue("PERSON", "Anna Schmidt"), PrivateValue("EMAIL_ADDRESS", "a@example.com")])
TEXT = "Dear Anna Schmidt, a person wrote to a@example.com; <Anna Schmidt> P"


def deltas(text: str, chance: random.Random, begin: int = 0) -> list[Delta]:
    found: list[Delta] = []
    while text:
        size = chance.randint(1, 6)
        found.append(Delta(begin + len(found), (begin + len(found),), text[:size]))
        text = text[size:]
    return found


def end(count: int, reason: FinishReason = FinishReason.STOP, text: str = "") -> End:
    return End(count, reason, Usage(1, count), text)


def read(events: list[StreamEvent], mask: Mask = MASK) -> list[StreamEvent]:
    put_back = PutBack(mask)
    return [one for event in events for one in put_back.read(event)]


def text_of(events: list[StreamEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, Delta | End))


@pytest.mark.parametrize("seed", range(200))
def test_an_answer_in_any_pieces_has_its_values_and_all_its_tokens(seed: int) -> None:
    whole = deltas(MASK.hide(TEXT), random.Random(seed))
    events = read([*whole, end(len(whole))])
    assert text_of(events) == TEXT
    tokens = [token for event in events if isinstance(event, Delta) for token in event.tokens]
    assert tokens == [*range(len(whole))]
    assert not [event for event in events if isinstance(event, Delta) and ("<P" in event.text or "<E" in event.text)]


@pytest.mark.parametrize("seed", range(200))
def test_a_next_owner_that_goes_on_behind_any_event_says_the_rest(seed: int) -> None:
    chance = random.Random(seed)
    whole = deltas(MASK.hide(TEXT), chance)
    shown = read([*whole[: chance.randint(0, len(whole))]])
    count = sum(len(event.tokens) for event in shown if isinstance(event, Delta))
    assert text_of(shown) + text_of(read([*whole[count:], end(len(whole))])) == TEXT


def test_a_text_without_placeholders_is_not_held_back() -> None:
    for event in (Delta(0, (1,), "Hello"), Delta(1, (2,), " there"), Delta(2, (3,), " 1 < 2")):
        assert read([event]) == [event]


def test_without_values_events_pass_as_they_are() -> None:
    event = Delta(0, (1,), "<PERSON_")
    assert read([event], NO_MASK) == [event]


@pytest.mark.parametrize(("reason", "shown"), [(FinishReason.LENGTH, "to "), (FinishReason.STOP, "to <PERSON_")])
def test_half_a_placeholder_in_an_answer_that_is_cut_short_is_dropped(reason: FinishReason, shown: str) -> None:
    assert text_of(read([Delta(0, (1,), "to <PERSON_"), end(1, reason)])) == shown


def test_a_placeholder_may_end_in_the_text_of_the_end() -> None:
    hidden = MASK.hide("Anna Schmidt")
    assert text_of(read([Delta(0, (1,), hidden[:9]), end(1, text=hidden[9:])])) == "Anna Schmidt"


def test_a_failure_drops_what_is_held_back() -> None:
    failure = Failure(1, "engine_error", "gone")
    assert read([Delta(0, (1,), "<PERSON_"), failure]) == [failure]


def test_arguments_of_calls_have_their_values() -> None:
    hidden = MASK.hide_json(json.dumps({"to": "a@example.com"}))
    pieces = [CallDelta(0, "mail")] + [CallDelta(0, arguments=hidden[at : at + 4]) for at in range(0, len(hidden), 4)]
    events: list[StreamEvent] = [Delta(at, (at,), "", calls=(one,)) for at, one in enumerate(pieces)]
    calls = (ModelCall("mail", hidden, "c"),)
    found = read([*events, End(len(pieces), FinishReason.TOOL_CALLS, Usage(1, 1), calls=calls)])
    shown = [call for event in found if isinstance(event, Delta) for call in event.calls]
    assert json.loads("".join(call.arguments for call in shown)) == {"to": "a@example.com"}
    assert [call.name for call in shown if call.name] == ["mail"]
    last = found[-1]
    assert isinstance(last, End)
    assert json.loads(last.calls[0].arguments) == {"to": "a@example.com"}
