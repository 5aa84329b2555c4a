"""An error about one answer ends that answer: its neighbours get what they would have got, and the engine lives on."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import math
from collections.abc import Callable
from typing import Any

import pytest

from models.engine import worker as worker_module
from models.engine.sequence import SequenceState
from models.engine.speculation.drafting import Speculation, SpeculationMode
from models.interface.generation import ConstraintKind, Failure, FinishReason, Job, OutputConstraint, Sampling
from models.structured import Matcher
from models.text.detokenizer import AnswerText
from models.tools import FORMATS
from tests.unit.models.engine.reading import Answer, job, read

PROMPT = tuple(range(10, 50))
SECRET = "what the user has written"
CODE = OutputConstraint(ConstraintKind.REGEX, "[A-Z]{2}-[0-9]{1,8}")


class PanicException(BaseException):
    """As extensions in Rust raise it: no `Exception`."""


async def ask(engine: Any, *jobs: Job) -> list[Answer]:
    return await asyncio.gather(
        *(read(stream, len(one.generated)) for one, stream in zip(jobs, engine.submit(jobs), strict=True))
    )


def failing(method: Callable[..., Any], error: BaseException, after: int) -> Callable[..., Any]:
    """The method of a sequence, or of what belongs to one, which fails for the job `bad` at its call number `after`."""
    calls = 0

    def call(self: Any, *arguments: Any, **named: Any) -> Any:
        nonlocal calls
        if getattr(self, "job", None) is None or self.job.id != "bad":
            return method(self, *arguments, **named)
        calls += 1
        if calls > after:
            raise error
        return method(self, *arguments, **named)

    return call


def good_jobs() -> list[Job]:
    return [job(PROMPT[n:], sampling=Sampling(seed=n), id=f"good{n}") for n in range(4)]


@pytest.mark.parametrize("error", [KeyError(SECRET), PanicException(SECRET)])
@pytest.mark.parametrize(
    ("method", "after", "speculates"),
    [
        ("__init__", 0, False),
        ("read", 0, False),
        ("begin", 0, False),
        ("append", 0, False),
        ("append", 2, True),
        ("draw", 0, False),
        ("draw", 2, False),
        ("draws", 0, True),
        ("_over", 2, False),
        ("_doubts", 2, True),
    ],
)
async def test_an_error_about_a_row(
    engines: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture,
    method: str, error: BaseException, after: int, speculates: bool,
) -> None:  # fmt: skip
    engine = await engines(speculation=SpeculationMode.LOOKUP if speculates else SpeculationMode.OFF)
    before = await ask(engine, *good_jobs())
    original = getattr(SequenceState, method)
    if method == "__init__":

        def broken(self: Any, given: Job, *arguments: Any) -> None:
            if given.id == "bad":
                raise error
            original(self, given, *arguments)

        monkeypatch.setattr(SequenceState, method, broken)
    else:
        monkeypatch.setattr(SequenceState, method, failing(original, error, after))
    with caplog.at_level(logging.INFO):
        *others, bad = await ask(engine, *good_jobs(), job(PROMPT, sampling=Sampling(seed=9), id="bad"))
    assert [one.tokens for one in others] == [one.tokens for one in before]
    if isinstance(bad.end, Failure):
        assert (bad.end.code, bad.end.message) == ("engine_error", worker_module.FAILED)
        assert SECRET not in caplog.text
    else:
        assert method == "draws"  # without a draft there is none
    (again,) = await ask(engine, job(PROMPT, id="after"))
    assert again.reason is FinishReason.LENGTH
    assert engine.pool.in_use == 0


@pytest.mark.parametrize("name", ["advance", "ahead", "copy"])
@pytest.mark.parametrize("error", [RuntimeError(SECRET), PanicException(SECRET)])
async def test_an_error_of_a_constraint(
    engines: Any, monkeypatch: pytest.MonkeyPatch, name: str, error: BaseException
) -> None:
    engine = await engines()
    before = await ask(engine, *good_jobs())

    def broken(*_arguments: Any) -> Any:
        raise error

    monkeypatch.setattr(Matcher, name, broken)
    *others, bad = await ask(engine, *good_jobs(), job(PROMPT, constraint=CODE, id="bad"))
    assert [one.tokens for one in others] == [one.tokens for one in before]
    assert isinstance(bad.end, Failure)
    assert SECRET not in bad.end.message


@pytest.mark.parametrize("name", ["step", "finish"])
@pytest.mark.parametrize("error", [IndexError(SECRET), PanicException(SECRET)])
@pytest.mark.parametrize("cancelled", [False, True])
async def test_an_error_of_the_text(
    engines: Any, monkeypatch: pytest.MonkeyPatch, name: str, error: BaseException, cancelled: bool
) -> None:
    engine = await engines()
    before = await ask(engine, *good_jobs())
    original = getattr(AnswerText, name)

    def broken(self: Any, *arguments: Any) -> Any:
        if self._parser is not None:
            raise error
        return original(self, *arguments)

    monkeypatch.setattr(AnswerText, name, broken)
    bad = job(PROMPT, 400, tools=FORMATS["json"], id="bad")
    (stream,) = engine.submit([bad])
    if cancelled:
        stream.cancel()
    others = await ask(engine, *good_jobs())
    failed = await read(stream)
    assert [one.tokens for one in others] == [one.tokens for one in before]
    if name == "step" and cancelled:  # before its first token
        assert failed.reason is FinishReason.CANCELLED
        return
    assert isinstance(failed.end, Failure)
    assert failed.end.message == worker_module.FAILED


@pytest.mark.parametrize("method", ["extend", "learn", "leave"])
async def test_an_error_of_speculation_changes_no_answer(
    engines: Any, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    engine = await engines(speculation=SpeculationMode.LOOKUP)
    before = await ask(engine, *good_jobs())
    monkeypatch.setattr(Speculation, method, lambda *_arguments: 1 / 0)
    assert [one.tokens for one in await ask(engine, *good_jobs())] == [one.tokens for one in before]


ODD = [
    {"logit_bias": ((5, math.nan),)},
    {"logit_bias": ((5, math.inf), (6, -math.inf))},
    {"logit_bias": ((5, 1e300),)},
    {"logit_bias": ((2**70, 1.0), (-1, 1.0), (10**400, 1.0))},
    {"logit_bias": tuple((token, -math.inf) for token in range(320))},
    {"seed": 2**64 - 1},
    {"seed": -(2**63)},
    {"seed": 10**40},
    {"temperature": 5e-324},
    {"temperature": 1e300},
    {"temperature": math.nan},
    {"temperature": -1.0},
    {"top_p": 5e-324},
    {"top_p": math.nan},
    {"top_p": 0.0},
    {"min_p": math.nan},
    {"min_p": 2.0},
    {"top_k": 2**62},
    {"top_k": 2**70},
    {"top_k": -5},
    {"presence_penalty": math.nan, "frequency_penalty": math.inf},
    {"repetition_penalty": 0.0},
    {"repetition_penalty": math.nan},
    {"repetition_penalty": 1e-300},
    {"logprobs": 10**6},
    {"logprobs": -3},
]


@pytest.mark.parametrize("sampling", ODD, ids=str)
async def test_numbers_at_the_edges_concern_their_own_row(engines: Any, sampling: dict[str, Any]) -> None:
    engine = await engines()
    before = await ask(engine, *good_jobs())
    odd = dataclasses.replace(Sampling(seed=3), **sampling)
    *others, bad = await ask(engine, *good_jobs(), job(PROMPT, sampling=odd, id="bad"))
    assert [one.tokens for one in others] == [one.tokens for one in before]
    assert bad.reason in {"engine_error", "length", "stop"}
    assert all(0 <= token < 320 for token in bad.tokens)


@pytest.mark.parametrize(
    "fields",
    [
        {"max_tokens": 2**63},
        {"max_tokens": -5},
        {"min_tokens": 2**63},
        {"stop": ("a" * 65536, "b" * 65536, "\ud800", "") * 8},
        {"stop": tuple("x" * n + "y" for n in range(256))},
        {"shared": 2**40},
        {"shared": -1},
        {"prompt_logprobs": 10**6},
        {"user": "\ud800" * 100, "tenant": "\0"},
    ],
    ids=lambda fields: next(iter(fields)),
)
async def test_fields_at_the_edges_concern_their_own_row(engines: Any, fields: dict[str, Any]) -> None:
    engine = await engines()
    before = await ask(engine, *good_jobs())
    *others, bad = await ask(engine, *good_jobs(), job(PROMPT, **{"id": "bad", **fields}))
    assert [one.tokens for one in others] == [one.tokens for one in before]
    assert bad.ends
