"""Answers of a model that reasons before it keeps to a form, in the engine."""

from __future__ import annotations

import dataclasses
import json

import jsonschema
import pytest
from tokenizers import AddedToken
from transformers import PreTrainedTokenizerFast

from models.checkpoints.loading import Checkpoint
from models.interface.generation import ConstraintKind, Delta, End, Job, OutputConstraint, Sampling, StreamEvent
from models.text.reasoning import Reasoning, reasoning_tokens
from tests.unit.models import tiny
from tests.unit.models.engine.reading import job

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": False}
CONSTRAINT = OutputConstraint(ConstraintKind.JSON, json.dumps(SCHEMA))
OPENED, POSSIBLE = Reasoning.OPENED, Reasoning.POSSIBLE


@pytest.fixture(scope="module")
def checkpoint() -> Checkpoint:
    plain = tiny.checkpoint(eos=True)
    backend = type(tiny.tokenizer().backend_tokenizer).from_str(tiny.tokenizer().backend_tokenizer.to_str())
    backend.add_tokens([AddedToken(tag, normalized=False, special=False) for tag in ("<think>", "</think>")])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<|end|>", pad_token="<|pad|>")
    plain.model.resize_token_embeddings(len(tokenizer))
    return dataclasses.replace(plain, tokenizer=tokenizer)


def asked(checkpoint: Checkpoint, begins: Reasoning, seed: int, generated: tuple[int, ...] = ()) -> Job:
    """The tags, the end, and what ends an object are made likely, or random weights would never write them."""
    tags = reasoning_tokens(checkpoint.tokenizer)
    assert tags is not None
    closing = checkpoint.tokenizer('"},', add_special_tokens=False).input_ids
    likely = {tags.begin: 8.0, tags.end: 7.0, **dict.fromkeys(closing, 8.0), 0: 9.0}
    sampling = Sampling(seed=seed, logit_bias=tuple(likely.items()))
    return job(range(10, 30), 160, sampling=sampling, constraint=CONSTRAINT, reasoning=begins, generated=generated)


def parts(events: list[StreamEvent]) -> tuple[str, str, list[int]]:
    """Reasoning, text and tokens."""
    told = [event for event in events if isinstance(event, Delta | End)]
    tokens = [token for event in told if isinstance(event, Delta) for token in event.tokens]
    return "".join(one.reasoning for one in told), "".join(one.text for one in told), tokens


@pytest.mark.parametrize("begins", [OPENED, POSSIBLE])
async def test_the_form_begins_behind_the_reasoning(engines, checkpoint: Checkpoint, begins: Reasoning) -> None:
    engine = await engines(checkpoint, max_running=16)
    jobs = [asked(checkpoint, begins, seed) for seed in range(24)]
    reasoned = 0
    for stream in engine.submit(jobs):
        events = [event async for event in stream]
        reasoning, text, _ = parts(events)
        reasoned += bool(reasoning)
        assert isinstance(events[-1], End)
        if events[-1].reason == "stop":
            jsonschema.validate(json.loads(text), SCHEMA)
        assert "think>" not in text
    assert reasoned > 8


@pytest.mark.parametrize("begins", [OPENED, POSSIBLE])
async def test_it_goes_on_from_any_token(engines, checkpoint: Checkpoint, begins: Reasoning) -> None:
    engine = await engines(checkpoint, max_running=16)
    streams = engine.submit([asked(checkpoint, begins, seed) for seed in range(24)])
    wholes = [parts([event async for event in stream]) for stream in streams]
    seed, (reasoning, text, tokens) = next((seed, whole) for seed, whole in enumerate(wholes) if all(whole))
    cuts = range(len(tokens) + 1)
    resumed = engine.submit([asked(checkpoint, begins, seed, tuple(tokens[:cut])) for cut in cuts])
    for cut, rest in zip(cuts, resumed, strict=True):
        more, left, following = parts([event async for event in rest])
        assert [*tokens[:cut], *following] == tokens
        assert reasoning.endswith(more)
        assert text.endswith(left)
