"""An answer that begins with the tokens of another: the same ids, and with the own engine the same rest."""

from __future__ import annotations

import os
import random
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app.features.forks import Beginnings
from app.serving.loading import load_models
from app.settings import Settings
from app.wire.event import EventType
from models.served.registry import ServedModel
from tests.unit.answering.bench import Told, answered
from tests.unit.answering.word_engine import model

DEMO = Path(__file__).parents[4] / "models" / "demo" / "checkpoint"
FORKS = int(os.environ.get("FORKS", "8"))
"""So many of each arithmetic; `FORKS=334` are a thousand."""
LONG = 24
ARITHMETICS: dict[str, Mapping[str, Any]] = {
    "float32": {"dtype": "float32"},
    "bfloat16": {"dtype": "bfloat16"},
    "int8": {"quantize": "int8"},
}


@pytest.fixture(params=ARITHMETICS)
async def served(request: pytest.FixtureRequest) -> AsyncIterator[ServedModel]:
    settings = Settings(model=str(DEMO), threads=1, speculation="off", **ARITHMETICS[request.param])
    (one, *_) = load_models(settings, on_fatal=pytest.fail)
    await one.engine.start()
    yield one
    await one.engine.stop()


def tokens_of(told: Told) -> list[int]:
    return [token for event in told.events for token in event.tokens or ()]


def text_of(told: Told) -> str:
    return "".join(event.text or "" for event in told.events)


async def ask(one: ServedModel, seed: int, fork: Mapping[str, Any] | None = None) -> Told:
    begins = {} if fork is None else {"from": {"request_id": "r0", "conversation_id": "c1", **fork}}
    fields = {"seed": seed, "temperature": 2.0, "top_k": -1, "top_p": 1.0, "max_tokens": LONG, **begins}
    return await answered(Beginnings(), models=[one], prompt="the one", **fields)


async def test_forks_at_random_tokens_are_the_same_answer(served: ServedModel) -> None:
    chance, wholes = random.Random(63), dict[int, Told]()
    for number in range(FORKS):
        seed = number % 16
        if seed not in wholes:
            wholes[seed] = await ask(served, seed)
        ids, text = tokens_of(wholes[seed]), text_of(wholes[seed])
        index = chance.randint(0, len(ids))
        told = await ask(served, seed, {"index": index, "tokens": ids[:index]})
        assert tokens_of(told) == ids
        assert text_of(told) == text
        assert told.end.usage is not None
        assert told.end.usage.completion_tokens == len(ids)
    other = await ask(served, 99, {"index": 4, "tokens": tokens_of(wholes[0])[:4]})
    assert tokens_of(other)[:4] == tokens_of(wholes[0])[:4]
    assert tokens_of(other) != tokens_of(wholes[0])
    assert len({tuple(tokens_of(one)) for one in wholes.values()}) > 1


async def test_a_model_with_other_ids_goes_on_behind_the_text() -> None:
    whole = await ask(model(), 1)
    ids, text = tokens_of(whole), "".join(event.text or "" for event in whole.events[:5])
    told = await ask(replace(model(), reads=None), 1, {"index": 5, "tokens": [7, 7, 7, 7, 7], "text": text})
    assert tokens_of(told)[:5] == [7] * 5
    assert tokens_of(told)[5:] == ids[5:]
    assert text_of(told) == text_of(whole)


async def test_without_a_text_such_a_model_is_refused() -> None:
    told = await ask(replace(model(), reads=None), 1, {"index": 2, "tokens": [7, 7]})
    assert told.end.type is EventType.ERROR
    assert told.end.error is not None
    assert told.end.error.message.startswith("from.text: is needed")
