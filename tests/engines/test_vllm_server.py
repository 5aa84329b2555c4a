"""Parley behind vLLM's server, dialects `vllm` and `openai`; a kill is simulated by the tokens that readers have."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from models.checkpoints.loading import describe_checkpoint, load_checkpoint
from models.engine import EngineOptions, TorchEngine
from models.interface.generation import ConstraintKind, End, FinishReason, Job, OutputConstraint, Sampling
from models.prompts.builder import PromptBuilder
from models.remote import RemoteEngine, RemoteOptions, RemotePrompts
from models.remote.answer import BYTES
from models.text.detokenizer import TextStream, Vocabulary
from tests.engines.server_process import NAME
from tests.engines.vllm_server import VllmServer
from tests.unit.models.engine.reading import Answer, job, read

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.slow, pytest.mark.timeout(900)]

PROMPTS = RemotePrompts(20, 1 << 19)
QUESTION = "Hi, I am Nina and my order number is 48213."
GREEDY = Sampling(temperature=0)
WILD = Sampling(temperature=2.0, seed=5)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VllmServer]:
    with VllmServer(tmp_path_factory.mktemp("server")) as made:
        yield made


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engines(server: VllmServer) -> AsyncIterator[dict[str, RemoteEngine]]:
    made = {
        dialect: RemoteEngine(
            RemoteOptions("outside", NAME, (server.url,), is_vllm=dialect != "openai", redraws=dialect != "exact")
        )
        for dialect in ("vllm", "openai", "exact")
    }
    yield made
    for engine in made.values():
        await engine.stop()


async def asked(engine: RemoteEngine, *jobs: Job) -> list[Answer]:
    streams = engine.submit(jobs)
    reading = (read(one, len(given.generated), is_counted=False) for one, given in zip(streams, jobs, strict=True))
    return list(await asyncio.gather(*reading))


def job_of(question: str = QUESTION, **fields: object) -> Job:
    return job(PROMPTS.build("", (), question).ids, **{"max_tokens": 32, **fields})  # type: ignore[arg-type]


async def test_a_greedy_answer_is_the_torch_engines(engines: dict[str, RemoteEngine]) -> None:
    checkpoint = load_checkpoint("demo", dtype="float32")
    torch = TorchEngine(checkpoint, EngineOptions(threads=1))
    await torch.start()
    prompt = PromptBuilder(checkpoint, 20).build("", (), QUESTION).ids
    (stream,) = torch.submit([job(prompt, 32)])
    own = await read(stream)
    await torch.stop()
    for dialect in ("vllm", "openai"):
        (answer,) = await asked(engines[dialect], job_of())
        assert (answer.text, answer.reason) == (own.text, own.reason)
    (answer,) = await asked(engines["vllm"], job_of())
    assert [token - BYTES for token in answer.tokens] == own.tokens


KINDS: dict[str, dict[str, object]] = {
    "greedy": {},
    "least length": {"min_tokens": 20, "max_tokens": 24},
    "its whole length": {"min_tokens": 24, "max_tokens": 24},
    "stop string": {"stop": ("ber is 482",)},
    "half characters": {
        "max_tokens": 48,
        "min_tokens": 48,
        "sampling": dataclasses.replace(GREEDY, repetition_penalty=50.0),
    },
}


@pytest.mark.parametrize("kind", KINDS)
async def test_an_answer_goes_on_with_the_same_words_from_every_token(
    engines: dict[str, RemoteEngine], kind: str
) -> None:
    given = job_of(**KINDS[kind])
    (whole,) = await asked(engines["vllm"], given)
    cuts = range(1, len(whole.tokens))
    assert len(cuts) > 3
    jobs = [dataclasses.replace(given, generated=tuple(whole.tokens[:cut])) for cut in cuts]
    for cut, rest in zip(cuts, await asked(engines["vllm"], *jobs), strict=True):
        if not given.stop:  # the piece that completes it may have tokens behind it
            assert whole.tokens[:cut] + rest.tokens == whole.tokens, f"at {cut}"
        assert text_before(whole.tokens[:cut], given.stop) + rest.text == whole.text, f"at {cut}"
        assert rest.reason == whole.reason


def text_before(tokens: list[int], stop: tuple[str, ...]) -> str:
    """What readers have of the answer with these tokens, by the tokenizer itself."""
    _, checkpoint = describe_checkpoint("demo")
    stream = TextStream(Vocabulary(checkpoint.tokenizer), stop)
    return "".join(stream.step(token - BYTES) for token in tokens)


async def test_a_sampled_answer_goes_on_with_other_words_that_are_no_repetition(
    engines: dict[str, RemoteEngine],
) -> None:
    given = job_of(sampling=WILD, min_tokens=32)
    (whole,) = await asked(engines["vllm"], given)
    (rest,) = await asked(engines["vllm"], dataclasses.replace(given, generated=tuple(whole.tokens[:8])))
    assert len(rest.tokens) == 24
    assert rest.tokens[:8] != whole.tokens[:8], "the noise of its beginning"


@pytest.mark.parametrize("dialect", ["openai", "exact"])
async def test_a_sampled_answer_ends_as_partial_where_it_would_have_other_words(
    engines: dict[str, RemoteEngine], dialect: str
) -> None:
    (whole,) = await asked(engines[dialect], job_of(sampling=WILD))
    (rest,) = await asked(engines[dialect], job_of(sampling=WILD, generated=tuple(whole.tokens[:4])))
    assert (rest.reason, rest.tokens) == (FinishReason.PARTIAL, [])


@pytest.mark.parametrize(
    ("kind", "rule"),
    [
        (
            ConstraintKind.JSON,
            '{"type": "object", "properties": {"order": {"type": "integer"}}, "required": ["order"]}',
        ),
        (ConstraintKind.REGEX, "[0-9]{4} [a-z]+"),
        (ConstraintKind.CHOICES, '["by post", "on foot"]'),
    ],
)
async def test_a_form_is_followed_and_never_begins_anew_in_the_middle(
    engines: dict[str, RemoteEngine], kind: ConstraintKind, rule: str
) -> None:
    given = job_of(constraint=OutputConstraint(kind, rule))
    (whole,) = await asked(engines["vllm"], given)
    assert whole.tokens
    (rest,) = await asked(engines["vllm"], dataclasses.replace(given, generated=tuple(whole.tokens[:2])))
    assert (rest.reason, rest.tokens) == (FinishReason.PARTIAL, [])


async def test_what_another_model_has_begun_is_continued_as_text_and_then_by_ids(
    engines: dict[str, RemoteEngine],
) -> None:
    begun = tuple(b"Hello Nina! I have noted that")
    (first,) = await asked(engines["vllm"], job_of(generated=begun))
    assert min(first.tokens) >= BYTES
    half = (*begun, *first.tokens[:3])
    (rest,) = await asked(engines["vllm"], job_of(generated=half))
    assert first.tokens[:3] + rest.tokens == first.tokens


async def test_a_raw_prompt_goes_on_by_its_ids(engines: dict[str, RemoteEngine]) -> None:
    given = job(PROMPTS.raw("Where is my order 4711?").ids, 16)
    (whole,) = await asked(engines["vllm"], given)
    (rest,) = await asked(engines["vllm"], dataclasses.replace(given, generated=tuple(whole.tokens[:5])))
    assert whole.tokens[:5] + rest.tokens == whole.tokens


async def test_a_conversation_of_ten_turns_finds_its_computed_prefix(engines: dict[str, RemoteEngine]) -> None:
    turns: list[tuple[str, str]] = []
    cached = []
    for number in range(6):
        (answer,) = await asked(engines["vllm"], job(PROMPTS.build("", turns, f"{QUESTION} {number}").ids, 16))
        assert isinstance(answer.end, End)
        cached.append(answer.end.usage.cached_tokens)
        turns.append((f"{QUESTION} {number}", answer.text))
    assert cached[-1] >= 0
