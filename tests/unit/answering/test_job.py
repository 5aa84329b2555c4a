from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from app.answering.dialogue import Dialogue
from app.answering.job import UnsupportedError, job_of, prompt_of
from app.delivery.accepted import Former
from app.settings import Settings
from app.wire.ids import seed_for
from app.wire.request import Message, Priority, Role
from app.wire.response_format import FormatType, JsonSchema, ResponseFormat
from models.interface import generation
from models.interface.generation import ConstraintKind, OutputConstraint
from models.prompts.builder import BuiltPrompt, PromptTooLong, PromptTooSlow
from models.served.paced import CONTEXT, BytePrompts, paced
from models.served.registry import ModelRegistry, ServedModel
from tables.records import KeptTurn
from tests.unit.answering.runs import run_of
from tests.unit.delivery.inflight_requests import ASKED_AT, NEW, answer_with, inflight_of

MODEL = paced(10)
SETTINGS = Settings(_env_file=None, max_tokens=77, model="demo")
MEMORY = (KeptTurn("r0", "before", "answered", 1),)


def dialogue_of(memory: tuple[KeptTurn, ...] = (), **fields: Any) -> Dialogue:
    return Dialogue(inflight_of(**fields).accepted.request, memory)


async def test_a_prompt_continues_its_conversation() -> None:
    alone = await prompt_of(dialogue_of(), MODEL, SETTINGS, ASKED_AT)
    after = await prompt_of(dialogue_of(MEMORY), MODEL, SETTINGS, ASKED_AT)
    assert b"before" in bytes(after.ids)
    assert b"before" not in bytes(alone.ids)


async def test_messages_are_the_whole_context() -> None:
    whole = {"prompt": None, "messages": (Message(Role.USER, "hello"),)}
    built = await prompt_of(dialogue_of(MEMORY, **whole), MODEL, SETTINGS, ASKED_AT)
    assert built == await prompt_of(dialogue_of(**whole), MODEL, SETTINGS, ASKED_AT)


async def test_a_long_prompt_is_built_in_a_thread_and_is_the_same() -> None:
    built = await prompt_of(dialogue_of(MEMORY, prompt="x" * 10_000), MODEL, SETTINGS, ASKED_AT)
    assert bytes(built.ids).endswith(b"x" * 10_000)


async def test_a_prompt_beyond_the_context_is_refused() -> None:
    with pytest.raises(PromptTooLong):
        await prompt_of(dialogue_of(prompt="x" * CONTEXT), MODEL, SETTINGS, ASKED_AT)


async def test_log_probabilities_do_not_reveal_the_services_system_prompt() -> None:
    secret = SETTINGS.model_copy(update={"system_prompt": "secret"})
    with pytest.raises(UnsupportedError, match="system prompt"):
        await prompt_of(dialogue_of(prompt_logprobs=1), MODEL, secret, ASKED_AT)
    own = (Message(Role.SYSTEM, "mine"), Message(Role.USER, "hello"))
    for allowed in ({"prompt": None, "messages": own}, {"raw": True}):
        await prompt_of(dialogue_of(prompt_logprobs=1, **allowed), MODEL, secret, ASKED_AT)


class LongTokens(BytePrompts):
    """A vocabulary with long tokens: few for a long text."""

    def _of(self, ids: bytes, turns: int = 0, reserve: int = 1) -> BuiltPrompt:
        return super()._of(ids[:4000], turns, reserve)


class Slow(BytePrompts):
    """A template that an event loop cannot wait for."""

    def build(self, *args: Any, **kwargs: Any) -> BuiltPrompt:
        if asyncio._get_running_loop() is not None:
            raise PromptTooSlow("too slow")
        return super().build(*args, **kwargs)


async def test_a_prompt_whose_template_is_slow_is_built_in_a_thread() -> None:
    slow = replace(MODEL, prompts=Slow())
    assert await prompt_of(dialogue_of(MEMORY), slow, SETTINGS, ASKED_AT) == await prompt_of(
        dialogue_of(MEMORY), MODEL, SETTINGS, ASKED_AT
    )


async def test_log_probabilities_of_a_prompt_have_room_in_one_event() -> None:
    dialogue = dialogue_of(prompt="x" * 1000, prompt_logprobs=3)
    prompt = await prompt_of(dialogue, MODEL, SETTINGS, ASKED_AT)
    assert job_of(dialogue, prompt, MODEL, SETTINGS).prompt_logprobs == 3
    with pytest.raises(UnsupportedError, match="more than 4096 entries"):
        await prompt_of(dialogue_of(prompt="x" * 1000, prompt_logprobs=4), MODEL, SETTINGS, ASKED_AT)
    large = replace(MODEL, prompts=LongTokens())
    with pytest.raises(UnsupportedError, match="one event has 1048576"):
        await prompt_of(dialogue_of(prompt="x" * 200_000, prompt_logprobs=0), large, SETTINGS, ASKED_AT)


@pytest.mark.parametrize(("asked", "given"), [(None, 77), (5, 5), (CONTEXT * 2, CONTEXT - 8)])
async def test_an_answer_has_room_for_what_it_asks_for_but_no_more_than_the_context(
    asked: int | None, given: int
) -> None:
    dialogue = dialogue_of(max_tokens=asked)
    prompt = await prompt_of(dialogue, MODEL, SETTINGS, ASKED_AT)
    room = CONTEXT - len(prompt.ids)
    assert job_of(dialogue, prompt, MODEL, SETTINGS).max_tokens == min(given, room)


async def test_a_job_goes_on_behind_what_was_said_with_the_same_seed() -> None:
    dialogue = dialogue_of(seed=None)
    prompt = await prompt_of(dialogue, MODEL, SETTINGS, ASKED_AT)
    first = job_of(dialogue, prompt, MODEL, SETTINGS)
    again = job_of(dialogue, prompt, MODEL, SETTINGS, [0, 1])
    assert again.generated == (0, 1)
    assert first.generated == ()
    assert again.sampling == first.sampling
    assert again.sampling.seed == seed_for("r1")


async def test_what_a_request_does_not_set_follows_the_checkpoint() -> None:
    prompt = await prompt_of(dialogue_of(), MODEL, SETTINGS, ASKED_AT)
    default = job_of(dialogue_of(), prompt, MODEL, SETTINGS).sampling
    set_all = job_of(dialogue_of(temperature=0.0, top_p=0.5, top_k=3, seed=9), prompt, MODEL, SETTINGS).sampling
    assert (default.temperature, default.top_p, default.top_k) == (1.0, 1.0, 0)
    assert set_all == generation.Sampling(0.0, 0.5, 3, 9)


async def test_penalties_and_biases_reach_the_sampler() -> None:
    prompt = await prompt_of(dialogue_of(), MODEL, SETTINGS, ASKED_AT)
    dialogue = dialogue_of(
        min_p=0.1, presence_penalty=1.0, frequency_penalty=-1.0, repetition_penalty=1.1, logit_bias={3: 5.0}
    )
    sampling = job_of(dialogue, prompt, MODEL, SETTINGS).sampling
    assert (sampling.min_p, sampling.presence_penalty, sampling.frequency_penalty) == (0.1, 1.0, -1.0)
    assert (sampling.repetition_penalty, sampling.logit_bias) == (1.1, ((3, 5.0),))


@pytest.mark.parametrize(
    ("form", "constraint"),
    [
        (None, None),
        (ResponseFormat(type=FormatType.TEXT), None),
        (ResponseFormat(type=FormatType.JSON_OBJECT), OutputConstraint(ConstraintKind.JSON, '{"type": "object"}')),
        (
            ResponseFormat(type=FormatType.JSON_SCHEMA, json_schema=JsonSchema(schema_={"b": 1, "a": 2})),
            OutputConstraint(ConstraintKind.JSON, '{"b": 1, "a": 2}'),
        ),
        (ResponseFormat(type=FormatType.REGEX, regex="a+"), OutputConstraint(ConstraintKind.REGEX, "a+")),
        (
            ResponseFormat(type=FormatType.CHOICES, choices=("b", "a")),
            OutputConstraint(ConstraintKind.CHOICES, '["b", "a"]'),
        ),
    ],
)
async def test_response_format_becomes_the_constraint_of_the_answer(
    form: ResponseFormat | None, constraint: OutputConstraint | None
) -> None:
    prompt = await prompt_of(dialogue_of(), MODEL, SETTINGS, ASKED_AT)
    assert job_of(dialogue_of(response_format=form), prompt, MODEL, SETTINGS).constraint == constraint


async def test_every_priority_of_a_request_is_one_of_the_engine() -> None:
    prompt = await prompt_of(dialogue_of(), MODEL, SETTINGS, ASKED_AT)
    ranks = [job_of(dialogue_of(priority=priority), prompt, MODEL, SETTINGS).priority for priority in Priority]
    assert ranks == sorted(ranks)
    assert len(set(ranks)) == len(Priority)


SMALL = replace(paced(10), names=frozenset({"small"}), adapter="tuned", adapter_version="tuned@2")
BOTH = ModelRegistry(MODEL, SMALL)


def model_of(former: Former = NEW, **fields: Any) -> ServedModel | None:
    return run_of(inflight=inflight_of(former, **fields), models=BOTH).model()


def test_a_model_is_served_by_any_of_its_names() -> None:
    assert model_of() is MODEL
    assert model_of(model="paced") is MODEL
    assert model_of(model="paced@1") is MODEL
    assert model_of(model="small") is SMALL
    assert model_of(model="paced@1+tuned@2") is SMALL
    assert model_of(model="another") is None


@pytest.mark.parametrize(
    ("began", "asked", "goes_on"),
    [
        ("paced@1+tuned@2", None, SMALL),  # the model of that version, whatever the reason was
        ("paced@1", "small", MODEL),
        ("gone@1", "small", SMALL),  # which then finds that it did not begin this answer
        ("gone@1", "another", None),
    ],
)
def test_an_answer_goes_on_with_the_model_that_began_it(began: str, asked: str, goes_on: ServedModel | None) -> None:
    assert model_of(Former(answer_with("a", model_version=began)), model=asked) is goes_on


def test_two_models_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="small"):
        ModelRegistry(SMALL, replace(MODEL, names=frozenset({"small"})))


async def test_a_job_names_its_adapter() -> None:
    prompt = await prompt_of(dialogue_of(), SMALL, SETTINGS, ASKED_AT)
    assert job_of(dialogue_of(), prompt, SMALL, SETTINGS).adapter == "tuned"
