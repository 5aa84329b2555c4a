"""Parley's jobs through vLLM's documented interface, over a stand-in of its names and parameters."""

from __future__ import annotations

import asyncio
import dataclasses

import pytest

from models.checkpoints import CheckpointError, describe_checkpoint
from models.generation import ConstraintKind, Delta, FinishReason, OutputConstraint, Priority, Sampling
from models.token_stream import EngineDied
from models.vllm import VllmOptions, create_vllm_engine
from models.vllm.parameters import prompt_of, sampling_of, seed_of
from tests.unit.models.engine.reading import Answer, job, read

PROMPT = (10, 11, 12)
FOLDER, CHECKPOINT = describe_checkpoint("demo")
EOS = min(CHECKPOINT.eos)


def ids(text: str) -> list[int]:
    found: list[int] = CHECKPOINT.tokenizer(text, add_special_tokens=False).input_ids
    return found


@pytest.fixture
async def engine(_fake_vllm):
    made = create_vllm_engine("demo", CHECKPOINT, VllmOptions())
    made._llm.words = ids("Hello Nina, order 4711 is on its way.")
    await made.start()
    yield made
    await made.stop()
    assert made._llm.down
    assert made.has_room
    assert made.stats.running == 0


async def ask(engine, *jobs) -> list[Answer]:
    streams = engine.submit(jobs)
    return await asyncio.gather(
        *(read(stream, len(asked.generated)) for stream, asked in zip(streams, jobs, strict=True))
    )


async def test_answer_ends_by_itself_and_its_end_of_sequence_is_no_token_of_it(engine) -> None:
    words = engine._llm.words
    engine._llm.words = [*words, EOS]
    (answer,) = await ask(engine, job(PROMPT, 50))
    assert (answer.tokens, answer.reason) == (words, "stop")
    assert answer.text == "Hello Nina, order 4711 is on its way."
    assert answer.end.usage.prompt_tokens == 3
    assert answer.end.usage.cached_tokens == 4


async def test_answer_is_no_longer_than_it_may_be(engine) -> None:
    (answer,) = await ask(engine, job(PROMPT, 4))
    assert (len(answer.tokens), answer.reason) == (4, "length")
    assert engine._llm.asked[0][1].max_tokens == 4


async def test_stop_string_ends_the_answer_before_it_and_frees_the_engine(engine) -> None:
    (answer,) = await ask(engine, job(PROMPT, 50, stop=("order",)))
    assert (answer.text, answer.reason) == ("Hello Nina, ", "stop")
    assert engine._llm.aborted


async def test_cancelled_answer_keeps_what_was_generated_and_frees_the_engine(engine) -> None:
    (stream,) = engine.submit([job(PROMPT, 10_000)])
    reading = asyncio.ensure_future(read(stream))
    await asyncio.sleep(0.05)
    stream.cancel()
    answer = await reading
    assert answer.reason == FinishReason.CANCELLED
    assert answer.end.index == len(answer.tokens) > 0
    assert engine._llm.aborted


async def test_answer_that_is_cancelled_before_it_begins_has_an_end(engine) -> None:
    (stream,) = engine.submit([job(PROMPT)])
    stream.cancel()
    answer = await read(stream)
    assert (answer.tokens, answer.reason) == ([], "cancelled")


async def test_answer_ends_at_its_deadline(engine) -> None:
    (stream,) = engine.submit([job(PROMPT, 10_000)])
    asyncio.get_running_loop().call_later(0.05, stream.cancel, FinishReason.DEADLINE)
    answer = await read(stream)
    assert answer.reason == FinishReason.DEADLINE


async def test_resumed_answer_goes_on_behind_what_was_generated(engine) -> None:
    generated = tuple(ids("Hello "))
    (answer,) = await ask(engine, job(PROMPT, 6, generated=generated, stop=("zz",)))
    prompt, sampling, _ = engine._llm.asked[0]
    assert prompt["prompt_token_ids"] == [*PROMPT, *generated]
    assert sampling.max_tokens == 6 - len(generated)
    assert answer.end.index == 6
    assert answer.end.usage.prompt_tokens == 3


async def test_resumed_answer_does_not_draw_the_noise_of_its_beginning_again() -> None:
    first = job(PROMPT, sampling=Sampling(seed=7))
    again = dataclasses.replace(first, generated=(1, 2))
    assert seed_of(first) == 7
    assert seed_of(again) not in {7, seed_of(dataclasses.replace(first, generated=(1,)))}
    assert seed_of(again) == seed_of(again)
    assert 0 <= seed_of(job(PROMPT, sampling=Sampling(seed=-(2**63)))) < 2**63


async def test_resumed_answer_with_a_constraint_is_partial_because_a_grammar_cannot_begin_in_its_midst(engine) -> None:
    constraint = OutputConstraint(ConstraintKind.REGEX, "[a-z ]+")
    (answer,) = await ask(engine, job(PROMPT, 9, generated=(20, 21), constraint=constraint))
    assert (answer.reason, answer.end.index) == (FinishReason.PARTIAL, 2)
    assert not engine._llm.asked


@pytest.mark.parametrize(
    ("constraint", "field", "value"),
    [
        (OutputConstraint(ConstraintKind.JSON, '{"type": "object"}'), "json", '{"type": "object"}'),
        (OutputConstraint(ConstraintKind.REGEX, "a+"), "regex", "a+"),
        (OutputConstraint(ConstraintKind.CHOICES, '["yes", "no"]'), "choice", ["yes", "no"]),
    ],
)
async def test_constraint_is_told_in_vllms_words(
    engine, constraint: OutputConstraint, field: str, value: object
) -> None:
    await ask(engine, job(PROMPT, 2, constraint=constraint))
    assert getattr(engine._llm.asked[0][1].structured_outputs, field) == value


async def test_constraint_that_vllm_refuses_is_a_bad_request(engine) -> None:
    (answer,) = await ask(engine, job(PROMPT, 2, constraint=OutputConstraint(ConstraintKind.REGEX, "(")))
    assert answer.reason == "invalid_request"


async def test_log_probabilities_of_the_prompt_come_with_the_first_tokens(engine) -> None:
    (stream,) = engine.submit([job(PROMPT, 3, prompt_logprobs=1)])
    deltas = [event async for event in stream if isinstance(event, Delta)]
    assert [one.token for one in deltas[0].prompt_logprobs] == list(PROMPT[1:])
    assert {(one.logprob, one.rank, one.top) for one in deltas[0].prompt_logprobs} == {(-2.5, 7, ((9, -1.5),))}
    assert not any(delta.prompt_logprobs for delta in deltas[1:])


@dataclasses.dataclass(frozen=True)
class Newer(Sampling):
    """Has a parameter that this vLLM does not know."""

    typical_p: float = 1.0


@pytest.mark.usefixtures("_fake_vllm")
def test_a_parameter_that_vllm_does_not_know_fails_only_the_jobs_that_use_it() -> None:
    assert sampling_of(job(PROMPT, sampling=Newer(top_k=7)), CHECKPOINT.eos, 5).top_k == 7
    with pytest.raises(TypeError, match="typical_p"):
        sampling_of(job(PROMPT, sampling=Newer(typical_p=0.5)), CHECKPOINT.eos, 5)


async def test_sampling_priority_and_tenant_are_passed_on(engine) -> None:
    sampling = Sampling(0.5, 0.9, 7, 3, 0.1, 0.2, 0.3, 1.1, ((5, 1.0),), 1)
    asked = job(PROMPT, 2, sampling=sampling, priority=Priority.BATCH, tenant="acme")
    (stream,) = engine.submit([asked])
    reported = [entry async for event in stream for entry in getattr(event, "logprobs", ())]
    prompt, given, priority = engine._llm.asked[0]
    assert (given.temperature, given.top_p, given.top_k, given.seed, given.min_p) == (0.5, 0.9, 7, 3, 0.1)
    assert (given.presence_penalty, given.frequency_penalty, given.repetition_penalty) == (0.2, 0.3, 1.1)
    assert (given.logit_bias, given.logprobs, given.detokenize) == ({5: 1.0}, 1, False)
    assert (priority, prompt["cache_salt"]) == (2, "acme\0")
    assert reported[0].logprob == -0.5
    assert reported[0].top[0] == (reported[0].token, -0.5)
    salts = {prompt_of(job(PROMPT, tenant=tenant, user=user))["cache_salt"] for tenant in "ab" for user in "xy"}
    assert len(salts) == 4


@pytest.mark.usefixtures("_fake_vllm")
async def test_engine_that_dies_tells_the_process_and_every_reader() -> None:
    fatal: list[str] = []
    engine = create_vllm_engine("demo", CHECKPOINT, VllmOptions(), fatal.append)
    engine._llm.words, engine._llm.dies_at = [9], 5
    for stream in engine.submit([job(PROMPT, 100), job(PROMPT, 100)]):
        with pytest.raises(EngineDied, match="EngineCore"):
            await read(stream)
    (late,) = engine.submit([job(PROMPT)])
    with pytest.raises(EngineDied):
        await read(late)
    assert len(fatal) == 1
    await engine.stop()


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        (job(()), "invalid_request"),
        (job([9] * CHECKPOINT.context_length), "prompt_too_long"),
        (job(PROMPT, adapter="shop"), "model_not_found"),
    ],
)
async def test_job_that_cannot_be_answered_is_refused(engine, asked, code: str) -> None:
    assert (await ask(engine, asked))[0].reason == code


@pytest.mark.usefixtures("_fake_vllm")
async def test_more_jobs_than_may_wait_are_refused() -> None:
    engine = create_vllm_engine("demo", CHECKPOINT, VllmOptions(max_running=1, max_waiting=1))
    engine._llm.words = [9]
    answers = await ask(engine, *(job(PROMPT, 3) for _ in range(3)))
    assert [answer.reason for answer in answers] == ["length", "length", "overloaded"]
    await engine.stop()


@pytest.mark.usefixtures("_fake_vllm")
def test_settings_become_vllms_arguments() -> None:
    options = VllmOptions(
        max_running=32,
        dtype="bfloat16",
        kv_cache_gb=2,
        more={"gpu_memory_utilization": 0.8, "tensor_parallel_size": 4},
    )
    args = create_vllm_engine("demo", CHECKPOINT, options)._llm.args
    assert args.tensor_parallel_size == 4
    assert (args.max_num_seqs, args.max_model_len, args.dtype) == (32, CHECKPOINT.context_length, "bfloat16")
    assert (args.kv_cache_memory_bytes, args.gpu_memory_utilization) == (2 << 30, 0.8)
    assert args.scheduling_policy == "priority"


@pytest.mark.usefixtures("_fake_vllm")
@pytest.mark.parametrize("options", [VllmOptions(more={"tensor_parallel_size": 16}), VllmOptions(more={"no_such": 1})])
def test_what_vllm_does_not_take_is_one_line(options: VllmOptions) -> None:
    with pytest.raises(CheckpointError, match="vLLM cannot serve it") as caught:
        create_vllm_engine("demo", CHECKPOINT, options)
    assert "\n" not in str(caught.value)


@pytest.mark.usefixtures("_no_vllm")
def test_where_vllm_is_not_installed_one_line_says_what_to_do() -> None:
    with pytest.raises(CheckpointError, match="extra `vllm`"):
        create_vllm_engine("demo", CHECKPOINT, VllmOptions())


def test_checkpoint_is_described_as_it_is_loaded() -> None:
    assert CHECKPOINT.model is None
    assert FOLDER.is_dir()
    assert CHECKPOINT.model_version.startswith("demo@")
