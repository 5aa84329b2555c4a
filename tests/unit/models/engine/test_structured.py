"""Answers with an output constraint, in the engine: in any batch, after any pause, under any limit."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import re
from concurrent.futures import Future

import pytest

from models.interface.generation import ConstraintKind, FinishReason, OutputConstraint, Sampling
from tests.unit.models import tiny
from tests.unit.models.engine.reading import Answer, job, read
from tests.unit.models.structured.schemas import random_schema
from tests.unit.models.structured.walks import check

PROMPT = tuple(range(10, 30))
CODE = OutputConstraint(ConstraintKind.REGEX, "[A-Z]{2}-[0-9]{4}")
CHOICES = OutputConstraint(ConstraintKind.CHOICES, '["yes", "no", "perhaps"]')


def constrained(seed: int, max_tokens: int = 160, **fields):
    """Closing brackets are made likely, or a model of random weights would never end its strings."""
    closing = tuple((token, 8.0) for token in tiny.tokenizer()('"}],', add_special_tokens=False).input_ids)
    constraint = OutputConstraint(ConstraintKind.JSON, json.dumps(random_schema(seed)))
    sampling = Sampling(temperature=1.0, seed=seed, logit_bias=closing)
    return job(PROMPT, max_tokens, constraint=constraint, sampling=sampling, **fields)


async def ask(engine, *jobs) -> list[Answer]:
    streams = engine.submit(jobs)
    return await asyncio.gather(
        *(read(stream, len(asked.generated)) for stream, asked in zip(streams, jobs, strict=True))
    )


@pytest.fixture
def checkpoint():
    return tiny.checkpoint(eos=True, max_position_embeddings=1024)


async def answers_keep_to_their_schemas(engine, seeds: range) -> int:
    """How many of them ended with `stop`."""
    stopped = 0
    for answer, seed in zip(await ask(engine, *(constrained(seed) for seed in seeds)), seeds, strict=True):
        assert answer.reason in {"stop", "length"}, answer.end
        if answer.reason == "stop":
            stopped += 1
            check(json.loads(answer.text), random_schema(seed))
        else:
            assert len(answer.tokens) == 160
    return stopped


async def test_answers_that_stop_are_what_their_schemas_describe(engines, checkpoint) -> None:
    engine = await engines(checkpoint, max_running=16)
    assert await answers_keep_to_their_schemas(engine, range(48)) > 24


@pytest.mark.slow
async def test_a_thousand_answers_that_stop_are_what_their_schemas_describe(engines, checkpoint) -> None:
    engine = await engines(checkpoint, max_running=64)
    assert await answers_keep_to_their_schemas(engine, range(1000)) > 500


async def test_constraints_touch_no_other_row_and_no_row_touches_them(engines, checkpoint) -> None:
    engine = await engines(checkpoint)
    free = [job(PROMPT[n:], sampling=Sampling(seed=n)) for n in range(4)]
    bound = [job(PROMPT, constraint=CODE), job(PROMPT, constraint=CHOICES), constrained(3)]
    alone = [(await ask(engine, one))[0] for one in (*free, *bound)]
    together = await ask(engine, *free, *bound)
    assert [answer.tokens for answer in together] == [answer.tokens for answer in alone]
    assert re.fullmatch(CODE.rule, together[4].text)
    assert together[5].text in json.loads(CHOICES.rule)
    assert [answer.reason for answer in together[4:6]] == ["stop", "stop"]


async def test_shaped_answer_goes_on_from_any_token_as_if_it_had_never_stopped(engines, checkpoint) -> None:
    engine = await engines(checkpoint)
    for whole in (constrained(3, 60), job(PROMPT, constraint=CODE, sampling=Sampling(seed=5))):
        (answer,) = await ask(engine, whole)
        cuts = range(len(answer.tokens) + 1)
        resumed = await ask(engine, *(dataclasses.replace(whole, generated=tuple(answer.tokens[:cut])) for cut in cuts))
        for cut, rest in zip(cuts, resumed, strict=True):
            assert [*answer.tokens[:cut], *rest.tokens] == answer.tokens
            assert rest.reason == answer.reason


async def test_answer_that_is_cut_short_is_the_beginning_of_one_of_its_constraint(engines, checkpoint) -> None:
    engine = await engines(checkpoint)
    (cut,) = await ask(engine, job(PROMPT, 3, constraint=CODE))
    (whole,) = await ask(engine, job(PROMPT, 30, constraint=CODE))
    assert (cut.reason, whole.reason) == ("length", "stop")
    assert whole.text.startswith(cut.text)


async def test_stop_string_ends_a_shaped_answer(engines, checkpoint) -> None:
    engine = await engines(checkpoint)
    (answer,) = await ask(engine, job(PROMPT, 30, constraint=CODE, stop=("-",)))
    assert answer.reason == "stop"
    assert re.fullmatch("[A-Z]{2}", answer.text)


async def test_penalties_and_logprobs_go_with_a_constraint(engines, checkpoint) -> None:
    engine = await engines(checkpoint)
    sampling = Sampling(seed=2, presence_penalty=1, repetition_penalty=1.2, top_k=5, top_p=0.9, logprobs=2)
    (answer,) = await ask(engine, job(PROMPT, constraint=CODE, sampling=sampling))
    assert re.fullmatch(CODE.rule, answer.text)


async def test_constraint_that_cannot_be_compiled_is_refused_and_nobody_else_is(engines, checkpoint, caplog) -> None:
    engine = await engines(checkpoint)
    bad = job(PROMPT, constraint=OutputConstraint(ConstraintKind.REGEX, "(Nina"))
    refused, answer = await ask(engine, bad, job(PROMPT))
    assert refused.reason == "invalid_request"
    assert refused.end.message.startswith("response_format: ")
    assert "response_format" in caplog.text
    assert "Nina" not in caplog.text
    assert answer.reason == "length"


async def test_said_tokens_of_another_constraint_are_refused(engines, checkpoint) -> None:
    engine = await engines(checkpoint)
    (refused,) = await ask(engine, job(PROMPT, constraint=CODE, generated=(5, 5)))
    assert refused.reason == "invalid_request"


class SlowCompiler:
    """The test decides when it compiles."""

    def __init__(self, constraints) -> None:
        self._constraints = constraints
        self._held = []

    def ask(self, constraint, _user):
        found: Future = Future()
        self._held.append((constraint, found))
        return found

    def compile(self) -> None:
        for constraint, found in self._held:
            if found.set_running_or_notify_cancel():
                found.set_result(self._constraints.ask(constraint).result(timeout=30))

    def stop(self) -> None:
        self._constraints.stop()


async def test_constraint_that_takes_long_to_compile_holds_up_nobody(engines, checkpoint) -> None:
    engine = await engines(checkpoint)
    slow = engine._worker._constraints = SlowCompiler(engine._worker._constraints)
    (waiting,) = engine.submit([job(PROMPT, constraint=CODE)])
    (answer,) = await ask(engine, job(PROMPT))
    assert answer.reason == "length"
    slow.compile()
    assert (await read(waiting)).reason == "stop"


async def test_answer_that_waits_for_its_constraint_can_be_cancelled_and_expires(engines, checkpoint) -> None:
    engine = await engines(checkpoint)
    slow = engine._worker._constraints = SlowCompiler(engine._worker._constraints)
    cancelled, expired = engine.submit([job(PROMPT, constraint=CODE), job(PROMPT, constraint=CODE)])
    cancelled.cancel()
    asyncio.get_running_loop().call_later(0.1, expired.cancel, FinishReason.DEADLINE)
    assert (await read(cancelled)).reason == "cancelled"
    assert (await read(expired)).reason == "deadline"
    slow.compile()
    assert (await ask(engine, job(PROMPT)))[0].reason == "length"
