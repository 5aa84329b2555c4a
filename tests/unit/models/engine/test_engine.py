import asyncio
import dataclasses
import random
import threading
import weakref

import pytest
import torch

from models.checkpoints.loading import CheckpointError
from models.compute.attention import dense
from models.compute.decoders import shape_of
from models.engine import EngineDied
from models.interface.generation import Delta, End, FinishReason, Sampling
from tests.unit.models import tiny
from tests.unit.models.engine.conftest import Oracle, plug
from tests.unit.models.engine.reading import job, read

CHECKPOINT = tiny.checkpoint()
PROMPT = tuple(random.Random(7).randrange(5, 300) for _ in range(40))


async def ask(engine, *jobs):
    return await asyncio.gather(*(read(s, len(j.generated)) for s, j in zip(engine.submit(jobs), jobs, strict=True)))


async def test_a_greedy_answer_is_the_models_own(engines):
    engine = await engines()
    (answer,) = await ask(engine, job(PROMPT, 30))
    assert answer.tokens == Oracle(CHECKPOINT).answer(PROMPT, 30)
    assert answer.reason is FinishReason.LENGTH
    assert answer.end.usage.prompt_tokens == 40


async def test_the_same_seed_says_the_same_alone_and_in_a_crowd_and_another_seed_does_not(engines):
    engine = await engines()
    wanted = job(PROMPT, sampling=Sampling(temperature=0.9, top_p=0.95, seed=5))
    crowd = [job(PROMPT[n:], sampling=Sampling(seed=n)) for n in range(1, 9)]
    (alone,) = await ask(engine, wanted)
    among = await ask(engine, *crowd[:4], wanted, *crowd[4:])
    (other,) = await ask(engine, dataclasses.replace(wanted, sampling=Sampling(temperature=0.9, seed=6)))
    assert among[4].tokens == alone.tokens != other.tokens


@pytest.mark.parametrize("cut", range(0, 21, 4))
async def test_an_answer_resumed_from_any_token_goes_on_exactly(engines, cut):
    engine = await engines()
    whole = job(PROMPT, 20, sampling=Sampling(temperature=1.2, seed=3), stop=("zq",))
    (answer,) = await ask(engine, whole)
    first = await read_until(engine, whole, cut)
    (rest,) = await ask(await engines(), dataclasses.replace(whole, generated=tuple(answer.tokens[:cut])))
    assert answer.tokens[:cut] + rest.tokens == answer.tokens
    assert first + rest.text == answer.text
    assert rest.end == dataclasses.replace(answer.end, usage=rest.end.usage, text=rest.end.text)


async def read_until(engine, wanted, count):
    """The text that stands after `count` tokens."""
    text, seen = "", 0
    short = dataclasses.replace(wanted, max_tokens=max(count, 1))
    async for event in engine.submit([short])[0]:
        if isinstance(event, Delta) and seen < count:
            text += event.text
            seen += len(event.tokens)
    return text


async def test_the_end_of_sequence_ends_the_answer_and_is_not_in_it(engines):
    plain = Oracle(CHECKPOINT).answer(PROMPT, 30)
    eos = plain[10]
    engine = await engines(dataclasses.replace(tiny.checkpoint(), eos=frozenset({eos})))
    (answer,) = await ask(engine, job(PROMPT, 30))
    assert answer.tokens == plain[: plain.index(eos)]
    assert answer.reason is FinishReason.STOP


async def test_a_stop_string_cuts_the_text_but_its_tokens_are_all_told(engines):
    engine = await engines()
    sampling = Sampling(seed=11)
    (plain,) = await ask(engine, job(PROMPT, 40, sampling=sampling))
    stop = plain.text[12:15]
    stopped = job(PROMPT, 40, sampling=sampling, stop=(stop,))
    (answer,) = await ask(engine, stopped)
    assert answer.text == plain.text[: plain.text.index(stop)]
    assert answer.tokens == plain.tokens[: len(answer.tokens)]
    assert answer.reason is FinishReason.STOP
    (again,) = await ask(engine, dataclasses.replace(stopped, generated=tuple(answer.tokens)))
    assert (again.tokens, again.text, again.end.index) == ([], "", len(answer.tokens))
    assert again.reason is FinishReason.STOP


async def test_an_answer_that_has_all_its_tokens_is_just_its_end(engines):
    engine = await engines()
    (answer,) = await ask(engine, job(PROMPT, 3, generated=(5, 6, 7)))
    assert answer.tokens == []
    assert (answer.end.index, answer.reason) == (3, FinishReason.LENGTH)


async def test_the_context_is_the_longest_an_answer_can_be(engines):
    engine = await engines(tiny.checkpoint(max_position_embeddings=64))
    (answer,) = await ask(engine, job(PROMPT, 1000))
    assert len(answer.tokens) == 24
    assert answer.reason is FinishReason.LENGTH


@pytest.mark.parametrize(
    ("bad", "code"),
    [
        (job(()), "invalid_request"),
        (job([1] * 600), "prompt_too_long"),
        (job([5, 10**6]), "invalid_request"),
        (job([5, -1]), "invalid_request"),
    ],
)
async def test_a_job_that_cannot_be_done_fails_alone(engines, bad, code):
    engine = await engines()
    good, failed = await ask(engine, job(PROMPT), bad)
    assert (failed.reason, good.reason) == (code, FinishReason.LENGTH)


async def test_a_full_queue_refuses_and_those_inside_go_on(engines):
    engine = await engines(max_running=2, max_waiting=3)
    answers = await ask(engine, *[job(PROMPT[n:]) for n in range(8)])
    assert [answer.reason for answer in answers] == ["length"] * 5 + ["overloaded"] * 3
    (later,) = await ask(engine, job(PROMPT))
    assert later.reason == "length"


async def test_cancel_ends_the_stream_once_and_frees_its_place(engines):
    engine = await engines(max_running=1)
    long, waiting = engine.submit([job(PROMPT, 400), job(PROMPT, 5)])
    first = await anext(aiter(long))
    long.cancel()
    long.cancel(FinishReason.PARTIAL)
    answer, next_one = await read(long, len(first.tokens)), await read(waiting)
    assert answer.reason is FinishReason.CANCELLED
    assert next_one.reason is FinishReason.LENGTH
    assert not engine._open
    long.cancel()


async def test_a_deadline_ends_the_answer_with_what_it_has(engines):
    engine = await engines(max_running=1)
    streams = engine.submit([job(PROMPT, 470), job(PROMPT, 470), job(PROMPT, 3)])
    for stream in streams[:2]:
        asyncio.get_running_loop().call_later(0.05, stream.cancel, FinishReason.DEADLINE)
    late, in_line, free = await asyncio.gather(*map(read, streams))
    assert late.reason == in_line.reason == FinishReason.DEADLINE
    assert len(late.tokens) < 470
    assert free.reason == "length"


async def test_a_reader_that_falls_behind_gets_the_tokens_it_missed_as_one(engines):
    engine = await engines()
    slow, other = engine.submit([job(PROMPT, 20), job(PROMPT, 25)])
    await read(other)
    events = [event async for event in slow]
    assert [type(event) for event in events] == [Delta, End]
    assert len(events[0].tokens) == 20


async def test_the_second_turn_computes_only_what_is_new(engines):
    engine = await engines()
    (first,) = await ask(engine, job(PROMPT, 20))
    before = engine.times.tokens
    second = job((*PROMPT, *first.tokens, 9, 8, 7), 1)
    (answer,) = await ask(engine, second)
    known = (len(PROMPT) + 20 - 1) // 16 * 16
    assert answer.end.usage.cached_tokens == known
    assert engine.times.tokens - before == len(second.prompt) - known


async def test_another_tenant_shares_no_prefix(engines):
    engine = await engines()
    await ask(engine, job(PROMPT, tenant="a"))
    other, same = await ask(engine, job(PROMPT, tenant="b"), job(PROMPT, tenant="a"))
    assert (other.end.usage.cached_tokens, same.end.usage.cached_tokens) == (0, 32)


class Spoiled:
    """Makes the forward fail or give NaN when some token is in the batch."""

    def __init__(self, engine, token, error=None):
        self.model, self.token, self.error = engine._runner.model, token, error
        plug(engine, self)

    def __call__(self, input_ids, **arguments):
        found = self.model(input_ids=input_ids, **arguments)
        at = (input_ids[0] == self.token).nonzero().flatten().tolist()
        if at and self.error is not None:
            raise self.error
        if at:
            sequences = arguments["logits_to_keep"].tolist()
            for place in at:
                found.logits[0, sequences.index(place)] = torch.nan
        return found


@pytest.mark.parametrize("error", [None, RuntimeError("kernel failed"), torch.OutOfMemoryError("no memory")])
async def test_a_row_whose_step_fails_is_told_and_its_neighbours_say_what_they_would_have_said(engines, error):
    engine = await engines()
    good = [job(PROMPT[n:], sampling=Sampling(seed=n)) for n in range(6)]
    before = await ask(engine, *good)
    generated = {token for answer in before for token in answer.tokens} | set(PROMPT)
    unused = next(token for token in range(5, 320) if token not in generated)
    Spoiled(engine, unused, error)
    *after, bad = await ask(engine, *good, job((*[17] * 20, unused)))
    assert [answer.tokens for answer in after] == [answer.tokens for answer in before]
    assert bad.reason == "engine_error"
    assert engine.pool.in_use == 0
    (again,) = await ask(engine, job((*[17] * 20, 17)))
    assert again.end.usage.cached_tokens == 0, "what a failed sequence left in the cache is not used"


async def test_nothing_that_is_not_finite_stays_in_the_cache(engines):
    engine = await engines()
    cache = engine._runner.cache
    Spoiled(engine, 318)
    await ask(engine, job((*[17] * 30, 318)))
    for tensor in (*cache.keys, *cache.values):
        assert tensor.isfinite().all()
        assert not tensor[1:].any(), "the pages of the sequence that failed are cleared"


async def test_the_engines_thread_dying_is_told_once_and_its_streams_raise(engines):
    fatal = []
    engine = await engines(on_fatal=fatal.append)
    engine.scheduler.schedule = lambda: 1 / 0
    with pytest.raises(EngineDied, match="ZeroDivisionError"):
        await ask(engine, job(PROMPT))
    with pytest.raises(EngineDied):
        await ask(engine, job(PROMPT))
    assert len(fatal) == 1


async def test_a_step_that_hangs_is_told(engines):
    reported, release = asyncio.Event(), threading.Event()
    engine = await engines(on_fatal=lambda line: reported.set(), hang_s=0.1)
    engine.scheduler.schedule = lambda: release.wait(20) and []
    stream = engine.submit([job(PROMPT)])[0]
    await reported.wait()
    with pytest.raises(EngineDied, match="hangs"):
        await read(stream)
    release.set()


async def test_stop_lets_readers_go_without_an_end(engines):
    engine = await engines()
    stream = engine.submit([job(PROMPT, 450)])[0]
    await anext(aiter(stream))
    await engine.stop()
    assert not [event async for event in stream if isinstance(event, End)]


async def test_who_asks_an_engine_that_has_stopped_is_told(engines):
    engine = await engines()
    await engine.stop()
    with pytest.raises(EngineDied, match="has stopped"):
        await asyncio.wait_for(read(engine.submit([job(PROMPT)])[0]), 60)


async def test_the_first_token_is_read_before_the_answer_is_whole(engines):
    engine = await engines()
    stream = engine.submit([job(PROMPT, 400)])[0]
    first = await anext(aiter(stream))
    assert len(first.tokens) < 400
    assert engine._open
    stream.cancel()
    await read(stream, len(first.tokens))
    assert not engine._open


async def test_a_prompt_for_which_memory_runs_out_is_computed_in_smaller_chunks(engines):
    engine = await engines()
    whole = Oracle(CHECKPOINT).answer(PROMPT, 5)
    model = engine._runner.model

    widths = []

    def forgetful(input_ids, **arguments):
        widths.append(input_ids.shape[1])
        if input_ids.shape[1] > 20:
            raise torch.OutOfMemoryError("no memory")
        return model(input_ids=input_ids, **arguments)

    plug(engine, forgetful)
    limits = dataclasses.replace(engine.scheduler.limits)
    (answer,) = await ask(engine, job(PROMPT, 5))
    assert answer.tokens == whole
    assert engine.scheduler.limits == limits, "of all others"
    assert max(widths) == len(PROMPT)
    assert sorted(widths)[-2] <= 20 < sum(widths)


async def test_memory_that_is_short_for_a_moment_longer_ends_no_engine(engines):
    fatal = []
    engine = await engines(on_fatal=fatal.append)
    whole = Oracle(CHECKPOINT).answer(PROMPT, 5)
    model, failed = engine._runner.model, []

    def short(input_ids, **arguments):
        if len(failed) < 2:
            failed.append(input_ids.shape[1])
            raise torch.OutOfMemoryError("no memory")
        return model(input_ids=input_ids, **arguments)

    plug(engine, short)
    (answer,) = await ask(engine, job(PROMPT, 5))
    assert failed == [len(PROMPT), 1], "a step, and the check of the device"
    assert (answer.tokens, fatal) == (whole, [])


async def test_what_a_failed_step_has_computed_is_freed_before_its_answers_are_tried_alone(engines):
    engine = await engines()
    model, computed, held = engine._runner.model, [], []

    def too_large(input_ids, **arguments):
        held.extend(one() is not None for one in computed)
        if input_ids.shape[1] > len(PROMPT):
            logits = torch.zeros(1000)
            computed.append(weakref.ref(logits))
            raise torch.OutOfMemoryError("no memory")
        return model(input_ids=input_ids, **arguments)

    plug(engine, too_large)
    await ask(engine, job(PROMPT, 5), job(PROMPT[1:], 5))
    assert computed
    assert held
    assert not any(held)


async def test_a_device_that_computes_nothing_any_more_ends_the_engine_and_no_answer(engines):
    fatal = []
    engine = await engines(on_fatal=fatal.append)

    def broken(**arguments):
        raise RuntimeError("illegal memory access")

    plug(engine, broken)
    with pytest.raises(EngineDied, match="illegal memory access"):
        await ask(engine, job(PROMPT), job(PROMPT[1:]))
    assert len(fatal) == 1


def flat_shape(model):
    shape = shape_of(model)
    return dataclasses.replace(shape, scale=shape.scale * 0.8)


def flat_dense(*tensors_and_width_and_scale):
    *others, scale = tensors_and_width_and_scale
    return dense(*others, scale * 0.8)


@pytest.mark.parametrize(
    ("kind", "place", "wrong"),
    [("llama", "compute.fused.shape_of", flat_shape), ("phi3", "compute.attention.dense", flat_dense)],
)
async def test_a_model_whose_logits_would_be_wrong_is_refused_at_the_start(engines, monkeypatch, kind, place, wrong):
    monkeypatch.setattr(f"models.{place}", wrong)
    fatal = []
    with pytest.raises(CheckpointError, match=rf"{kind}: the engine's logits differ from its own by \d"):
        await engines(tiny.checkpoint(kind, sliding_window=None), on_fatal=fatal.append)
    assert not fatal


def narrow(kind, **changes):
    """A model with a window of 48 tokens in its config."""
    experts = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
    more = experts | {"shared_expert_intermediate_size": 32} if kind == "qwen2_moe" else {}
    return tiny.checkpoint(kind, sliding_window=48, **more, **changes)


@pytest.mark.parametrize("kind", ["mistral", "phi3", "gemma3_text"])
async def test_a_window_counts_as_the_model_itself_counts_it(engines, kind):
    prompt = tuple(range(5, 125))
    checkpoint = narrow(kind)
    engine = await engines(checkpoint)
    assert (await ask(engine, job(prompt, 20)))[0].tokens == Oracle(checkpoint).answer(prompt, 20)


@pytest.mark.parametrize("kind", ["llama", "qwen2_moe"])
async def test_a_window_that_the_engine_is_not_told_of_is_served_within_it_alone(engines, kind):
    """Of a Llama's, which some converted checkpoints have, nothing but the cache of `generate` knows."""
    windowed = {"use_sliding_window": True, "max_window_layers": 2} if kind == "qwen2_moe" else {}
    with pytest.raises(CheckpointError, match=f"{kind}.*context_length of 48"):
        await engines(narrow(kind, **windowed))
    checkpoint = dataclasses.replace(narrow(kind, **windowed), context_length=48)
    engine = await engines(checkpoint)
    assert (await ask(engine, job(PROMPT[:20], 20)))[0].tokens == Oracle(checkpoint).answer(PROMPT[:20], 20)


@pytest.mark.parametrize("length", [1, 2, 16, 33])
async def test_a_context_shorter_than_what_is_tried_at_the_start_is_served(engines, length):
    engine = await engines(dataclasses.replace(tiny.checkpoint(), context_length=length), pages=10)
    (answer,) = await ask(engine, job((7,), 40))
    assert answer.reason in ({"prompt_too_long"} if length == 1 else {FinishReason.LENGTH})


async def test_a_model_that_the_engine_cannot_compute_is_refused_in_one_line(engines):
    with pytest.raises(
        CheckpointError, match="gpt_oss: the engine cannot compute it: this model's attention"
    ) as refused:
        await engines(tiny.checkpoint("gpt_oss", num_local_experts=4, layer_types=["full_attention"] * 2))
    assert "\n" not in str(refused.value)


async def test_a_cache_without_room_for_one_answer_is_refused(engines):
    with pytest.raises(CheckpointError, match="has room for 144 tokens and one answer may have 512"):
        await engines(pages=10)


async def test_logprobs_come_with_their_tokens_also_for_a_reader_that_falls_behind(engines):
    engine = await engines()
    asked = job(PROMPT, 12, sampling=Sampling(seed=4, logprobs=3))
    slow, other = engine.submit([asked, job(PROMPT, 30)])
    await read(other)
    events = [event async for event in slow]
    assert [one.token for one in events[0].logprobs] == list(events[0].tokens)
    assert all(len(one.top) == 3 for one in events[0].logprobs)
