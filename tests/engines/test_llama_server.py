"""Parley behind llama.cpp's server, dialect `openai`: what it answers, what is refused, and what its death leaves."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import urllib.request
from collections.abc import AsyncIterator, Iterator
from typing import Any

import jsonschema
import pytest
import pytest_asyncio

from models.checkpoints.loading import load_checkpoint
from models.engine import EngineOptions, TorchEngine
from models.interface.generation import ConstraintKind, Delta, End, FinishReason, Job, OutputConstraint, Sampling
from models.prompts.builder import PromptBuilder, PromptError
from models.remote import RemoteEngine, RemoteOptions, RemotePrompts
from tests.engines.llama_server import KEY, SLOTS, LlamaServer
from tests.engines.server_process import NAME
from tests.llama_cpp_build import SERVER, program
from tests.unit.models.engine.reading import Answer, job, read
from tests.unit.models.engine.test_tools import TOOLS

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(
        not program(SERVER).exists(), reason=f"no llama.cpp: `python -m tests.llama_cpp_build {SERVER}` makes it"
    ),
]

PROMPTS = RemotePrompts(20, 1 << 19)
QUESTIONS = ("How long does delivery take?", "Can I return a lamp?", "Which payment methods do you take?")
GREETING = "Hi, I am Nina and my order number is 48213."
LIST = {"type": "array", "items": {"type": "integer"}, "minItems": 60, "maxItems": 60}
LONG = OutputConstraint(ConstraintKind.JSON, json.dumps(LIST))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LlamaServer]:
    with LlamaServer(tmp_path_factory.mktemp("llama")) as made:
        yield made


def options_of(server: LlamaServer, **changes: object) -> RemoteOptions:
    return dataclasses.replace(RemoteOptions("outside", NAME, (server.url,), KEY), **changes)  # type: ignore[arg-type]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine(server: LlamaServer) -> AsyncIterator[RemoteEngine]:
    made = RemoteEngine(options_of(server))
    yield made
    await made.stop()


async def asked(engine: RemoteEngine, *jobs: Job) -> list[Answer]:
    return list(await asyncio.gather(*(read(one, is_counted=False) for one in engine.submit(jobs))))


def job_of(question: str = QUESTIONS[0], turns: tuple[tuple[str, str], ...] = (), **fields: object) -> Job:
    return job(PROMPTS.build("", turns, question).ids, **{"max_tokens": 40, **fields})  # type: ignore[arg-type]


def told(server: LlamaServer, path: str) -> Any:
    asking = urllib.request.Request(
        f"http://127.0.0.1:{server.port}/{path}", headers={"Authorization": f"Bearer {KEY}"}
    )
    with urllib.request.urlopen(asking, timeout=10) as reply:
        return json.load(reply)


def processing(server: LlamaServer) -> int:
    """Answers that the server computes, by its own account."""
    return sum(slot["is_processing"] for slot in told(server, "slots"))


async def test_its_model_is_served_under_the_name_that_parley_asks_for(server: LlamaServer) -> None:
    assert [one["id"] for one in told(server, "v1/models")["data"]] == [NAME]


async def test_greedy_answers_and_their_conversation_are_the_torch_engines(engine: RemoteEngine) -> None:
    checkpoint = load_checkpoint("demo", dtype="float32")
    torch = TorchEngine(checkpoint, EngineOptions(threads=1))
    await torch.start()
    turns: tuple[tuple[str, str], ...] = ()
    for question in QUESTIONS:
        built = PromptBuilder(checkpoint, 20).build("", turns, question)
        (stream,) = torch.submit([job(built.ids, 40)])
        own = await read(stream)
        (answer,) = await asked(engine, job_of(question, turns))
        assert (answer.text, answer.reason) == (own.text, own.reason)
        assert isinstance(answer.end, End)
        assert answer.end.usage.prompt_tokens == len(built.ids)
        turns = (*turns, (question, own.text))
    await torch.stop()


async def test_text_comes_as_it_is_written(engine: RemoteEngine) -> None:
    (stream,) = engine.submit([job_of(GREETING)])
    deltas = [event async for event in stream if isinstance(event, Delta)]
    assert len(deltas) > 1
    assert "".join(delta.text for delta in deltas).startswith("Hello Nina! I have noted")


async def test_a_raw_prompt_is_completed(engine: RemoteEngine) -> None:
    (answer,) = await asked(engine, job(PROMPTS.raw("Where is my").ids, 8))
    assert answer.text
    assert answer.reason in {FinishReason.STOP, FinishReason.LENGTH}


async def test_an_answer_has_at_most_its_tokens(engine: RemoteEngine) -> None:
    (whole,), (cut,) = await asked(engine, job_of(GREETING)), await asked(engine, job_of(GREETING, max_tokens=5))
    assert cut.reason is FinishReason.LENGTH
    assert cut.text == "Hello Nina! I have"
    assert whole.text.startswith(cut.text)
    assert isinstance(cut.end, End)
    assert cut.end.usage.completion_tokens == 5


async def test_a_stop_string_ends_an_answer_before_it(engine: RemoteEngine) -> None:
    (answer,) = await asked(engine, job_of(GREETING, stop=("noted that",)))
    assert (answer.text, answer.reason) == ("Hello Nina! I have ", FinishReason.STOP)


async def test_a_seed_repeats_a_sampled_answer(engine: RemoteEngine) -> None:
    jobs = [job(PROMPTS.raw("Where is").ids, 16, sampling=Sampling(2.0, seed=number % 8)) for number in range(16)]
    answers = [(await asked(engine, one))[0].text for one in jobs]
    assert answers[:8] == answers[8:]
    assert len(set(answers)) > 1


async def test_sixteen_at_once_answer_as_each_alone(engine: RemoteEngine) -> None:
    jobs = [job_of(QUESTIONS[number % len(QUESTIONS)]) for number in range(4 * SLOTS)]
    alone = [(await asked(engine, one))[0].text for one in jobs[: len(QUESTIONS)]]
    assert [one.text for one in await asked(engine, *jobs)] == [alone[n % len(alone)] for n in range(len(jobs))]


async def test_an_answer_has_the_form_of_its_schema(engine: RemoteEngine) -> None:
    schema = {"type": "object", "properties": {"days": {"enum": [2, 3]}}, "required": ["days"]}
    schema["additionalProperties"] = False
    rule = OutputConstraint(ConstraintKind.JSON, json.dumps(schema))
    (answer,) = await asked(engine, job_of(sampling=Sampling(2.0, seed=5), constraint=rule, max_tokens=400))
    jsonschema.validate(json.loads(answer.text), schema)


REFUSED: dict[str, dict[str, object]] = {
    "response_format": {"constraint": OutputConstraint(ConstraintKind.REGEX, "[0-9]+")},
    "logprobs": {"sampling": Sampling(logprobs=2)},
    "prompt_logprobs": {"prompt_logprobs": 2},
    "logit_bias": {"sampling": Sampling(logit_bias=((9, 2.0),))},
    "min_tokens": {"min_tokens": 4},
    "top_k": {"sampling": Sampling(top_k=4)},
    "repetition_penalty": {"sampling": Sampling(repetition_penalty=1.2)},
}


@pytest.mark.parametrize("name", REFUSED)
async def test_what_openais_api_lacks_is_refused_by_name(engine: RemoteEngine, name: str) -> None:
    (answer,) = await asked(engine, job_of(**REFUSED[name]))
    assert answer.reason == "invalid_request"
    assert answer.end.message.startswith(f"{name}: ")  # type: ignore[union-attr]


async def test_tools_and_token_ids_are_refused_before_the_server_is_asked() -> None:
    with pytest.raises(PromptError, match=r"^tools: "):
        PROMPTS.build("", (), QUESTIONS[0], tools=TOOLS)
    with pytest.raises(PromptError, match=r"^prompt_token_ids: "):
        PROMPTS.of_ids((9, 10))


async def test_an_answer_cannot_go_on_with_what_another_has_written(engine: RemoteEngine) -> None:
    (answer,) = await asked(engine, job(PROMPTS.build("", (), messages=None, prompt="hi", continues=True).ids, 8))
    assert answer.end.message.startswith("continue_final_message: ")  # type: ignore[union-attr]
    (stream,) = engine.submit([job_of(generated=tuple(b"Delivery takes"))])
    assert [event.reason async for event in stream if isinstance(event, End)] == [FinishReason.PARTIAL]


async def test_a_schema_that_the_server_does_not_read_is_the_askers_fault(engine: RemoteEngine) -> None:
    rule = OutputConstraint(ConstraintKind.JSON, '{"$ref": "#/definitions/secret"}')
    (answer,) = await asked(engine, job_of(constraint=rule))
    assert answer.reason == "invalid_request"
    assert "secret" not in answer.end.message  # type: ignore[union-attr]


async def test_older_turns_that_do_not_fit_its_context_are_left_out(engine: RemoteEngine) -> None:
    old = tuple((f"{QUESTIONS[0]} " * 12, "Delivery takes 2 to 3 days. " * 12) for _ in range(18))
    (answer,) = await asked(engine, job_of(QUESTIONS[1], (*old, (QUESTIONS[0], "Delivery takes 2 to 3 days."))))
    assert answer.reason is FinishReason.STOP
    assert isinstance(answer.end, End)
    assert 0 < answer.end.usage.prompt_tokens < 1024


async def test_a_message_that_does_not_fit_alone_is_refused(engine: RemoteEngine) -> None:
    (answer,) = await asked(engine, job_of(f"{QUESTIONS[0]} " * 400))
    assert answer.reason == "invalid_request"


async def test_an_answer_ends_where_the_servers_context_does(engine: RemoteEngine) -> None:
    endless = OutputConstraint(ConstraintKind.JSON, json.dumps({**LIST, "minItems": 400, "maxItems": 400}))
    (answer,) = await asked(engine, job_of(constraint=endless, max_tokens=4000))
    assert answer.reason is FinishReason.LENGTH


async def test_a_conversation_finds_its_computed_prefix(engine: RemoteEngine) -> None:
    turns: tuple[tuple[str, str], ...] = ()
    cached = []
    for number in range(10):
        question = QUESTIONS[number % len(QUESTIONS)]
        (answer,) = await asked(engine, job_of(question, turns))
        assert isinstance(answer.end, End)
        cached.append(answer.end.usage.cached_tokens)
        turns = (*turns, (question, answer.text))
    print("cached tokens of ten turns:", cached)
    assert all(later > 0 for later in cached[1:])


async def test_a_wrong_key_is_said_and_not_shown(server: LlamaServer) -> None:
    stranger = RemoteEngine(options_of(server, api_key="a-wrong-key", patience_s=0.2))
    (answer,) = await asked(stranger, job_of())
    await stranger.stop()
    assert answer.reason in {"engine_error", "overloaded"}
    assert "a-wrong-key" not in answer.end.message  # type: ignore[union-attr]


async def test_the_server_stops_when_an_answer_is_cancelled(server: LlamaServer, engine: RemoteEngine) -> None:
    streams = engine.submit([job_of(constraint=LONG, max_tokens=900) for _ in range(4 * SLOTS)])
    first = await anext(aiter(streams[0]))
    assert isinstance(first, Delta)
    for stream in streams:
        stream.cancel()
    for stream in streams:
        events = [event async for event in stream]
        assert isinstance(events[-1], End)
        assert events[-1].reason in {FinishReason.CANCELLED, FinishReason.STOP}
    async with asyncio.timeout(60):
        while await asyncio.to_thread(processing, server):
            await asyncio.sleep(0.05)


async def test_a_server_that_is_killed_leaves_beginnings_and_is_asked_again_after_its_restart(
    server: LlamaServer,
) -> None:
    """Of sixteen answers four are under way. What has no token yet is asked again; the others cannot go on."""
    engine = RemoteEngine(options_of(server, patience_s=300.0))
    jobs = [job_of(QUESTIONS[n % 3], constraint=LONG, max_tokens=900) for n in range(4 * SLOTS)]
    whole = [(await asked(engine, one))[0].text for one in jobs[:3]]
    streams = engine.submit(jobs)
    reading = [asyncio.ensure_future(read(stream, is_counted=False)) for stream in streams]
    async with asyncio.timeout(60):
        while not await asyncio.to_thread(processing, server):
            await asyncio.sleep(0)
    server.kill()
    server.start()
    await asyncio.to_thread(server.wait_ready)
    found = {"whole": 0, "partial": 0}
    for number, answer in enumerate(await asyncio.gather(*reading)):
        text = whole[number % 3]
        found["partial" if answer.reason is FinishReason.PARTIAL else "whole"] += 1
        assert text.startswith(answer.text) if answer.reason is FinishReason.PARTIAL else answer.text == text
    print("after the kill:", found)
    assert found["whole"] >= 4 * SLOTS - SLOTS
    (later,) = await asked(engine, job_of())
    assert later.reason is FinishReason.STOP
    await engine.stop()
