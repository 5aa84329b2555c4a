"""Answers of a model without chat template, in the engine."""

from __future__ import annotations

import dataclasses

import pytest

from models.interface.generation import Delta, End, FinishReason
from models.text.plain_dialogue import PlainStart
from tests.unit.models import tiny
from tests.unit.models.engine.reading import job


@pytest.mark.parametrize("least", [0, 100])
async def test_the_engine_ends_there_also_when_it_resumes_and_not_before_the_least(engines, least: int) -> None:
    checkpoint = tiny.checkpoint(eos=True)
    written = checkpoint.tokenizer(" it arrives\nUser: ", add_special_tokens=False)["input_ids"]
    engine = await engines(checkpoint)
    for known in range(len(written)):
        biased = tuple((token, 100.0) for token in written[known : known + 1])
        one = job(range(10, 30), known + 1, generated=tuple(written[:known]), plain=PlainStart.WITHIN, min_tokens=least)
        one = dataclasses.replace(one, sampling=dataclasses.replace(one.sampling, temperature=0.0, logit_bias=biased))
        (stream,) = engine.submit([one])
        events = [event async for event in stream]
        end = events[-1]
        assert isinstance(end, End)
        is_over = known + 1 == len(written) and not least
        assert end.reason is (FinishReason.STOP if is_over else FinishReason.LENGTH)
        text = "".join(event.text for event in events if isinstance(event, Delta | End))
        assert "User:" not in text or least
