"""vLLM in Parley's process, one start: its answers are the torch engine's, and every one of them can be resumed."""

from __future__ import annotations

import asyncio
import dataclasses
import json

import pytest

from models.interface.generation import (
    ConstraintKind,
    Delta,
    End,
    FinishReason,
    Job,
    JobPriority,
    LowConfidence,
    OutputConstraint,
    Sampling,
)
from models.prompts.builder import PromptBuilder
from models.tools import ToolChoice, tool_constraint
from tests.engines.conftest import TENANTS, Engines
from tests.engines.processes import children_of
from tests.unit.models.engine.reading import Answer, job, read
from tests.unit.models.engine.test_tools import TOOLS

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(900)]

ORDER = {
    "type": "object",
    "properties": {"order": {"type": "integer", "maximum": 99999}, "name": {"type": "string", "maxLength": 12}},
    "required": ["order", "name"],
    "additionalProperties": False,
}
QUESTIONS = (
    "Hi, I am Nina and my order number is 48213.",
    "How long does delivery take?",
    "Can I return a lamp?",
    "Where is my order 4711?",
)
WILD = Sampling(temperature=2.0, seed=11)


def prompt_of(engines: Engines, question: str, turns: tuple[tuple[str, str], ...] = ()) -> tuple[int, ...]:
    return PromptBuilder(engines.checkpoint, 20).build("You answer for a shop.", turns, question).ids


def constrained(kind: ConstraintKind, rule: str) -> OutputConstraint:
    return OutputConstraint(kind, rule)


def kinds(engines: Engines) -> dict[str, Job]:
    prompt = prompt_of(engines, QUESTIONS[3])
    form = PromptBuilder(engines.checkpoint, 0).tool_format
    tools = tool_constraint(form, TOOLS, ToolChoice.REQUIRED)
    return {
        "greedy": job(prompt, 24),
        "sampled": job(prompt, 40, sampling=WILD),
        "filtered": job(prompt, 40, sampling=Sampling(1.5, 0.95, 40, 5, 0.01)),
        "penalties": job(prompt, 40, sampling=Sampling(1.0, 1.0, 0, 4, 0.0, 0.5, 0.5, 1.2, ((9, 2.0),))),
        "least length": job(prompt, 40, sampling=WILD, min_tokens=30),
        "stop string": job(prompt, 40, sampling=Sampling(1.5, seed=2), stop=("e",)),
        "json": job(prompt, 60, sampling=WILD, constraint=constrained(ConstraintKind.JSON, json.dumps(ORDER))),
        "regex": job(
            prompt, 30, sampling=WILD, constraint=constrained(ConstraintKind.REGEX, "([0-9]{3} [a-z]{2,9}, )+!")
        ),
        "choices": job(
            prompt, 30, sampling=WILD, constraint=constrained(ConstraintKind.CHOICES, '["by post", "by hand"]')
        ),
        "grammar": job(
            prompt, 30, sampling=WILD, constraint=constrained(ConstraintKind.GRAMMAR, 'start: ("yes" | "no")+ "."')
        ),
        "tools": job(prompt, 80, sampling=WILD, constraint=tools, tools=form),
        "long prompt": job(prompt_of(engines, " ".join(QUESTIONS * 12)), 24, sampling=WILD),
        "adapter": job(prompt, 24, sampling=WILD, adapter="tenant3"),
    }


KINDS = (
    *("greedy", "sampled", "filtered", "penalties", "least length", "stop string", "json", "regex", "choices"),
    *("grammar", "tools", "long prompt", "adapter"),
)


async def asked(engine, *jobs: Job) -> list[Answer]:
    streams = engine.submit(jobs)
    return list(
        await asyncio.gather(*(read(one, len(given.generated)) for one, given in zip(streams, jobs, strict=True)))
    )


@pytest.mark.parametrize("kind", KINDS)
async def test_answers_as_the_torch_engine_does_and_goes_on_from_any_token(engines: Engines, kind: str) -> None:
    """The kill is simulated: what a successor gets is the job with the tokens that readers have."""
    given = kinds(engines)[kind]
    (whole,), (torch,) = await asked(engines.vllm, given), await asked(engines.torch, given)
    assert (whole.tokens, whole.text, whole.reason) == (torch.tokens, torch.text, torch.reason)
    assert getattr(whole.end, "calls", None) == getattr(torch.end, "calls", None)
    cuts = range(1, len(whole.tokens), max(1, len(whole.tokens) // 8))
    jobs = [dataclasses.replace(given, generated=tuple(whole.tokens[:cut])) for cut in cuts]
    for cut, rest in zip(cuts, await asked(engines.vllm, *jobs), strict=True):
        assert whole.tokens[:cut] + rest.tokens == whole.tokens, f"at {cut}"
        assert rest.reason == whole.reason
        assert whole.text.endswith(rest.text)


async def test_sixteen_at_once_answer_as_each_alone(engines: Engines) -> None:
    jobs = [job(prompt_of(engines, QUESTIONS[n % 4]), 24, sampling=Sampling(1.3, seed=n)) for n in range(16)]
    together = await asked(engines.vllm, *jobs)
    alone = [(await asked(engines.vllm, one))[0] for one in jobs[:4]]
    assert [one.tokens for one in together[:4]] == [one.tokens for one in alone]
    assert [one.tokens for one in together] == [one.tokens for one in await asked(engines.torch, *jobs)]


async def test_each_tenant_has_the_answer_of_its_own_adapter(engines: Engines) -> None:
    prompt = prompt_of(engines, QUESTIONS[0])
    jobs = [job(prompt, 12, adapter=f"tenant{number}") for number in range(TENANTS)]
    answers = await asked(engines.vllm, *jobs, job(prompt, 12))
    assert [one.tokens for one in answers] == [one.tokens for one in await asked(engines.torch, *jobs, job(prompt, 12))]
    assert len({tuple(one.tokens) for one in answers}) > TENANTS // 2
    (unknown,) = await asked(engines.vllm, job(prompt, 12, adapter="nobody"))
    assert unknown.reason == "model_not_found"


async def test_a_conversation_of_ten_turns_finds_its_computed_prefix(engines: Engines) -> None:
    for engine in (engines.torch, engines.vllm):
        turns: tuple[tuple[str, str], ...] = ()
        sizes, cached = [], []
        for number in range(10):
            question = QUESTIONS[number % 4]
            (answer,) = await asked(engine, job(prompt_of(engines, question, turns), 24, user="nina"))
            assert isinstance(answer.end, End)
            sizes.append(answer.end.usage.prompt_tokens)
            cached.append(answer.end.usage.cached_tokens)
            turns = (*turns, (question, answer.text))
        print(f"\n{engine.model_version}: prompts of {sizes} tokens, of them computed before {cached}")
        assert cached[0] == 0
        assert all(later > 0 for later in cached[3:])
    (other,) = await asked(engines.vllm, job(prompt_of(engines, question, turns[:-1]), 4, user="omar"))
    assert isinstance(other.end, End)
    assert other.end.usage.cached_tokens == 0, "nobody learns from its time what another has asked"


async def test_log_probabilities_are_the_torch_engines(engines: Engines) -> None:
    given = job(prompt_of(engines, QUESTIONS[1]), 8, sampling=Sampling(temperature=0, logprobs=3), prompt_logprobs=2)
    found = {}
    for engine in (engines.vllm, engines.torch):
        (stream,) = engine.submit([given])
        deltas = [event async for event in stream if isinstance(event, Delta)]
        prompt = [one for delta in deltas for one in delta.prompt_logprobs]
        found[engine] = prompt, [one for delta in deltas for one in delta.logprobs]
    for ours, torch in zip(*found.values(), strict=True):
        assert [one.token for one in ours] == [one.token for one in torch]
        assert [one.logprob for one in ours] == pytest.approx([one.logprob for one in torch], abs=1e-3)
        assert [one.rank for one in ours] == [one.rank for one in torch]
        assert [one.top[0][0] for one in ours] == [one.top[0][0] for one in torch]
        assert {len(one.top) for one in ours} == {len(one.top) for one in torch}


async def test_an_answer_ends_when_the_model_is_not_confident(engines: Engines) -> None:
    sampling = dataclasses.replace(WILD, logprobs=0)
    given = job(prompt_of(engines, QUESTIONS[2]), 60, sampling=sampling, stop_when=LowConfidence(-1.0, 4))
    (ours,), (torch,) = await asked(engines.vllm, given), await asked(engines.torch, given)
    assert (ours.tokens, ours.reason) == (torch.tokens, torch.reason)
    assert len(ours.tokens) < 60


async def test_a_cancelled_answer_keeps_what_was_written_and_others_go_on(engines: Engines) -> None:
    prompt = prompt_of(engines, QUESTIONS[2])
    long = job(prompt, 600, min_tokens=600, sampling=WILD)
    streams = engines.vllm.submit([long, dataclasses.replace(long, max_tokens=60, min_tokens=60)])
    first = await anext(aiter(streams[0]))
    assert isinstance(first, Delta)
    streams[0].cancel()
    rest = [event async for event in streams[0]]
    assert isinstance(rest[-1], End)
    assert rest[-1].reason is FinishReason.CANCELLED
    assert len((await read(streams[1])).tokens) == 60
    async with asyncio.timeout(30):
        while engines.vllm.stats.running:
            await asyncio.sleep(0.01)


async def test_what_is_urgent_is_answered_before_a_batch(engines: Engines) -> None:
    """VLLM computes 64 at once here; what waits begins in the order of its priority."""
    prompt = prompt_of(engines, QUESTIONS[2])
    batch = [job(prompt, 48, min_tokens=48, sampling=WILD, priority=JobPriority.BATCH) for _ in range(96)]
    ended: list[str] = []

    async def reading(stream, name: str) -> None:
        await read(stream)
        ended.append(name)

    waiting = [asyncio.ensure_future(reading(stream, "batch")) for stream in engines.vllm.submit(batch)]
    (urgent,) = engines.vllm.submit([job(prompt, 8, priority=JobPriority.INTERACTIVE)])
    await asyncio.gather(reading(urgent, "urgent"), *waiting)
    assert ended.index("urgent") <= 64


async def test_its_queue_and_its_cache_are_in_the_figures_of_the_engine(engines: Engines) -> None:
    """More answers than vLLM computes at once, here 64; each long enough to be seen."""
    prompt = prompt_of(engines, QUESTIONS[2])
    streams = engines.vllm.submit([job(prompt, 60, min_tokens=60, sampling=WILD) for _ in range(96)])
    reading = asyncio.gather(*map(read, streams))
    most_used, waited = 0.0, 0
    while not reading.done():
        stats = engines.vllm.stats
        most_used, waited = max(most_used, stats.kv_cache_usage), max(waited, engines.vllm._figures.waiting)
        await asyncio.sleep(0.01)
    await reading
    assert 0 < most_used <= 1
    assert 0 < waited <= 96
    assert (engines.vllm.stats.running, engines.vllm.stats.waiting) == (0, 0)
    assert engines.vllm.stats.steps > 60


@pytest.mark.parametrize(
    ("field", "constraint"),
    [
        ("response_format", constrained(ConstraintKind.REGEX, "(")),
        ("response_format", constrained(ConstraintKind.GRAMMAR, "start: nothing")),
    ],
)
async def test_a_form_that_cannot_be_followed_is_refused_by_name(
    engines: Engines, field: str, constraint: OutputConstraint
) -> None:
    (answer,) = await asked(engines.vllm, job(prompt_of(engines, QUESTIONS[2]), 20, constraint=constraint))
    assert answer.reason == "invalid_request"
    assert answer.end.message.startswith(f"{field}: ")  # type: ignore[union-attr]


async def test_what_readers_have_that_breaks_the_form_is_partial(engines: Engines) -> None:
    given = kinds(engines)["json"]
    (answer,) = await asked(engines.vllm, dataclasses.replace(given, generated=given.prompt[:3]))
    assert (answer.reason, answer.tokens) == (FinishReason.PARTIAL, [])


async def test_prompts_that_do_not_fit_are_refused(engines: Engines) -> None:
    context = engines.vllm.context_length
    too_long, last = await asked(engines.vllm, job([9] * context, 4), job([9] * (context - 1), 4))
    assert too_long.reason == "prompt_too_long"
    assert len(last.tokens) <= 1


async def test_the_version_says_what_computes(engines: Engines) -> None:
    assert engines.vllm.model_version == f"{engines.torch.model_version}+vllm-float32-cpu"


async def test_a_core_that_dies_while_nothing_is_asked_is_noticed_and_leaves_no_process(engines: Engines) -> None:
    """The last test of this start."""
    began = children_of()
    core = next(process for process in began if "EngineCore" in process.name)
    assert not engines.fatal
    core.kill()
    async with asyncio.timeout(60):
        while not engines.fatal:
            await asyncio.sleep(0.05)
        while any(process.lives and "VLLM" in process.name for process in began):
            await asyncio.sleep(0.05)
    (late,) = engines.vllm.submit([job(prompt_of(engines, QUESTIONS[2]), 4)])
    with pytest.raises(Exception, match="vLLM's engine has died"):
        await read(late)
