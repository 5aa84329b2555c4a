"""Parley's jobs through vLLM's documented interface, over a stand-in of its names and parameters."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from types import SimpleNamespace

import pytest

from models.checkpoints.loading import CheckpointError, describe_checkpoint
from models.files.adapters import AdapterFiles
from models.interface.generation import (
    ConstraintKind,
    Delta,
    FinishReason,
    JobPriority,
    LowConfidence,
    OutputConstraint,
    Sampling,
)
from models.interface.token_stream import EngineDied
from models.vllm import VllmOptions, create_vllm_engine
from models.vllm.own_draws import OwnDraws
from models.vllm.parameters import prompt_of, sampling_of
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


async def test_what_waits_in_vllm_and_how_full_its_cache_is_are_its_own_figures(engine) -> None:
    from vllm.v1.metrics.stats import SchedulerStats  # type: ignore[import-not-found]  # noqa: PLC0415 - the stand-in

    streams = engine.submit([job(PROMPT, 50) for _ in range(4)])
    assert (engine.stats.running, engine.stats.waiting) == (4, 0), "before vLLM has said anything"
    (logger,) = engine._llm.stat_loggers
    preempted = SimpleNamespace(num_preempted_reqs=2)
    logger.record(SchedulerStats(1, 2, 1, 0.75), preempted, mm_cache_stats=None, engine_idx=0)
    stats = engine.stats
    assert (stats.running, stats.waiting, stats.kv_cache_usage, stats.preemptions, stats.steps) == (1, 3, 0.75, 2, 1)
    logger.record(None, None)
    logger.record(SchedulerStats(0, 9), SimpleNamespace())
    assert (engine.stats.running, engine.stats.waiting) == (0, 4), "no more than was asked"
    logger.record(SchedulerStats(), None)
    await asyncio.gather(*map(read, streams))
    assert (engine.stats.running, engine.stats.waiting, engine.stats.steps) == (0, 0, 3)


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
    first = await anext(aiter(stream))
    assert isinstance(first, Delta)
    stream.cancel()
    answer = await read(stream, len(first.tokens))
    assert answer.reason == FinishReason.CANCELLED
    assert answer.end.index == len(first.tokens) + len(answer.tokens)
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


async def test_resumed_answer_of_vllms_own_sampler_does_not_draw_the_noise_of_its_beginning_again() -> None:
    first = job(PROMPT, sampling=Sampling(seed=7))
    again = dataclasses.replace(first, generated=(1, 2))
    assert first.seed_of_rest == 7
    assert again.seed_of_rest not in {7, dataclasses.replace(first, generated=(1,)).seed_of_rest}
    assert 0 <= job(PROMPT, sampling=Sampling(seed=-(2**63))).seed_of_rest < 2**63


SPECULATIVE = VllmOptions(more={"speculative_config": {"method": "ngram"}})


@pytest.fixture
async def speculative(_fake_vllm):
    made = create_vllm_engine("demo", CHECKPOINT, SPECULATIVE)
    made._llm.words = ids("Hello Nina")
    yield made
    await made.stop()


async def test_where_vllm_speculates_no_processor_is_loaded_and_its_own_sampler_draws(speculative) -> None:
    assert speculative._llm.args.logits_processors is None
    await ask(speculative, job(PROMPT, 2, sampling=Sampling(0.5, seed=3)))
    given = speculative._llm.asked[0][1]
    assert (given.temperature, given.seed, given.extra_args) == (0.5, 3, None)
    assert speculative.model_version.endswith("+vllm-float32-cpu-speculative")


async def test_resumed_answer_with_a_constraint_is_partial_where_vllms_own_grammar_follows_it(speculative) -> None:
    constraint = OutputConstraint(ConstraintKind.REGEX, "[a-z ]+")
    (answer,) = await ask(speculative, job(PROMPT, 9, generated=(20, 21), constraint=constraint))
    assert (answer.reason, answer.end.index) == (FinishReason.PARTIAL, 2)
    assert not speculative._llm.asked


@pytest.mark.parametrize(
    ("constraint", "field", "value"),
    [
        (OutputConstraint(ConstraintKind.JSON, '{"type": "object"}'), "json", '{"type": "object"}'),
        (OutputConstraint(ConstraintKind.REGEX, "a+"), "regex", "a+"),
        (OutputConstraint(ConstraintKind.CHOICES, '["yes", "no"]'), "choice", ["yes", "no"]),
    ],
)
async def test_constraint_is_told_in_vllms_words_where_it_speculates(
    speculative, constraint: OutputConstraint, field: str, value: object
) -> None:
    await ask(speculative, job(PROMPT, 2, constraint=constraint))
    assert getattr(speculative._llm.asked[0][1].structured_outputs, field) == value


async def test_constraint_that_vllm_refuses_is_a_bad_request(speculative) -> None:
    (answer,) = await ask(speculative, job(PROMPT, 2, constraint=OutputConstraint(ConstraintKind.REGEX, "(")))
    assert answer.reason == "invalid_request"


ORDER = OutputConstraint(ConstraintKind.REGEX, "Hello Nina, order [0-9]+")


async def test_constraint_is_given_to_the_sampler_inside_vllm_and_goes_on_behind_what_is_written(engine) -> None:
    words = engine._llm.words = ids("Hello Nina, order 4711")
    (whole,) = await ask(engine, job(PROMPT, len(words), constraint=ORDER))
    assert whole.text == "Hello Nina, order 4711"
    given = engine._llm.asked[0][1]
    own = OwnDraws.read(given.extra_args)
    assert own == OwnDraws(job(PROMPT).sampling, 0, 0, ORDER)
    assert (given.structured_outputs, given.temperature) == (None, 0.0)
    engine._llm.words = words[2:]
    (rest,) = await ask(engine, job(PROMPT, len(words), generated=tuple(words[:2]), constraint=ORDER))
    assert words[:2] + rest.tokens == words
    assert OwnDraws.read(engine._llm.asked[1][1].extra_args).generated == 2


async def test_what_readers_have_that_breaks_the_constraint_is_partial(engine) -> None:
    (answer,) = await ask(engine, job(PROMPT, 9, generated=tuple(ids("Good")), constraint=ORDER))
    assert (answer.reason, engine._llm.asked) == (FinishReason.PARTIAL, [])


async def test_an_answer_that_is_complete_by_its_constraint_ends_there(engine) -> None:
    engine._llm.words = ids("yes yes")
    (answer,) = await ask(engine, job(PROMPT, 50, constraint=OutputConstraint(ConstraintKind.CHOICES, '["yes"]')))
    assert (answer.text, answer.reason) == ("yes", "stop")
    assert engine._llm.aborted


async def test_a_token_that_the_constraint_does_not_allow_is_no_silent_change(engine) -> None:
    (answer,) = await ask(engine, job(PROMPT, 50, constraint=OutputConstraint(ConstraintKind.REGEX, "[0-9]+")))
    assert (answer.reason, answer.tokens) == ("engine_error", [])


async def test_constraint_that_cannot_be_compiled_is_a_bad_request_that_names_its_field(engine) -> None:
    (answer,) = await ask(engine, job(PROMPT, 2, constraint=OutputConstraint(ConstraintKind.REGEX, "(")))
    assert answer.reason == "invalid_request"
    assert answer.end.message.startswith("response_format: ")


def test_how_tokens_are_drawn_is_read_as_it_was_written() -> None:
    assert OwnDraws.of(job(PROMPT)) is None, "vLLM takes the likeliest token itself"
    sampling = Sampling(0.5, 0.9, 7, 3, 0.1, 0.2, 0.3, 1.1, ((5, 1.0), (6, -2.0)), 1)
    asked = job(PROMPT, sampling=sampling, min_tokens=4, generated=(1, 2), constraint=ORDER)
    own = OwnDraws.of(asked)
    assert own is not None
    assert OwnDraws.read(json.loads(json.dumps(own.written()))) == own
    assert OwnDraws.read(None) is None


async def test_answer_ends_when_the_model_is_not_confident(engine) -> None:
    rule = LowConfidence(-0.4, 3)
    (answer,) = await ask(engine, job(PROMPT, 9, sampling=Sampling(logprobs=0), stop_when=rule))
    assert (len(answer.tokens), answer.reason) == (3, "stop")


@pytest.mark.usefixtures("_fake_vllm")
async def test_an_idle_engine_that_dies_is_noticed() -> None:
    fatal = asyncio.get_running_loop().create_future()
    engine = create_vllm_engine("demo", CHECKPOINT, VllmOptions(), fatal.set_result)
    await engine.start()
    engine._llm.down = True
    assert "EngineCore" in await fatal
    await engine.stop()


@pytest.mark.usefixtures("_fake_vllm")
async def test_an_adapter_is_loaded_by_vllm_as_it_is_asked_for(tmp_path) -> None:
    files = []
    for number, rank in enumerate((3, 9)):
        folder = tmp_path / f"a{number}"
        folder.mkdir()
        (folder / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "r": rank, "lora_alpha": 4}))
        files.append(AdapterFiles.find(folder.name, folder))
    engine = create_vllm_engine("demo", CHECKPOINT, VllmOptions(adapters=files))
    args = engine._llm.args
    assert (args.enable_lora, args.max_lora_rank, args.max_loras, args.max_cpu_loras) == (True, 16, 3, 3)
    engine._llm.words = [9]
    await ask(engine, job(PROMPT, 1, adapter="a1"), job(PROMPT, 1))
    asked, plain = engine._llm.loras
    assert (asked.lora_name, asked.lora_int_id, asked.lora_path) == (files[1].version, 2, str(files[1].folder))
    assert plain is None
    await engine.stop()


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
    own = sampling_of(job(PROMPT, sampling=Newer(top_k=7)), CHECKPOINT.eos, 5, is_drawn_here=False)
    assert own.top_k == 7
    with pytest.raises(TypeError, match="typical_p"):
        sampling_of(job(PROMPT, sampling=Newer(typical_p=0.5)), CHECKPOINT.eos, 5, is_drawn_here=False)


async def test_a_users_long_prompts_come_behind_anothers_short_one(engine) -> None:
    long = [job(tuple(range(10, 1010)), 1, user="a", priority=JobPriority.INTERACTIVE) for _ in range(9)]
    await ask(engine, *long, job(PROMPT, 1, user="b"), job(PROMPT, 1, user="c", priority=JobPriority.BATCH))
    *of_long, short, batch = (priority for _, _, priority in engine._llm.asked)
    assert min(of_long) > short + 9000
    assert 4900 < batch - short < 5900
    await ask(engine, long[0], job(PROMPT, 1, user="b"))
    (_, _, first), (_, _, short) = engine._llm.asked[-2:]
    assert first - short < 2000, "the former ones have been computed"
    assert not engine._backlog._tokens


async def test_sampling_and_tenant_are_passed_on(engine) -> None:
    sampling = Sampling(0.5, 0.9, 7, 3, 0.1, 0.2, 0.3, 1.1, ((5, 1.0),), 1)
    asked = job(PROMPT, 2, sampling=sampling, priority=JobPriority.BATCH, tenant="acme")
    (stream,) = engine.submit([asked])
    reported = [entry async for event in stream for entry in getattr(event, "logprobs", ())]
    prompt, given, _ = engine._llm.asked[0]
    assert OwnDraws.read(given.extra_args).sampling == sampling
    assert (given.temperature, given.logprobs, given.detokenize) == (0.0, 1, False)
    assert prompt["cache_salt"] == "acme\0"
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
