"""An engine over outside servers that are killed, hung, slow, full, or answer rubbish."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from dataclasses import replace

import pytest

from app.local.ports import free_port
from models.interface.generation import (
    ConstraintKind,
    Delta,
    End,
    Failure,
    FinishReason,
    Job,
    OutputConstraint,
    Sampling,
)
from models.remote import RemoteEngine, RemoteOptions, RemotePrompts
from models.remote.answer import BYTES
from models.remote.servers import Circuit, ModelServer
from tests.unit.models.engine.reading import Answer, read
from tests.unit.models.remote.outside import PROMPT_IDS, WORDS, OutsideServer, outside_server

PROMPTS = RemotePrompts(10, 1 << 19)
GREEDY = Sampling(temperature=0)
NewEngine = Callable[..., RemoteEngine]
TROUBLES = ["close", "silent", "rubbish", "shapes", "no choices", "failed", "error"]
"""Of any server; `end` is one of those that tell a reason otherwise."""


@pytest.fixture
async def servers() -> AsyncIterator[list[OutsideServer]]:
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(outside_server()) for _ in range(2)]


@pytest.fixture
async def new_engine(servers: list[OutsideServer]) -> AsyncIterator[NewEngine]:
    made: list[RemoteEngine] = []

    def new(count: int = 1, **options: object) -> RemoteEngine:
        given = {"silence_s": 60.0, "connect_s": 5.0, "patience_s": 5.0, "is_vllm": True, **options}
        urls = tuple(server.url for server in servers[:count])
        made.append(RemoteEngine(RemoteOptions("outside", "chatty", urls, **given)))
        return made[-1]

    yield new
    for engine in made:
        await engine.stop()


def job_of(text: str = "hello", max_tokens: int = 8, **fields: object) -> Job:
    built = PROMPTS.build("", [("before", "answered")], text)
    return Job(**{"id": "r", "prompt": built.ids, "max_tokens": max_tokens, "sampling": GREEDY, **fields})


async def ask(engine: RemoteEngine, job: Job) -> Answer:
    (stream,) = engine.submit([job])
    return await read(stream, len(job.generated), is_counted=False)


def words(first: int, last: int) -> str:
    return "".join(WORDS[first:last])


async def test_an_answer_is_the_servers_text_and_its_tokens_are_its_bytes(
    servers: list[OutsideServer], new_engine: NewEngine
) -> None:
    answer = await ask(new_engine(), job_of())
    assert (answer.text, answer.reason) == (words(0, 8), "length")
    assert bytes(answer.tokens).decode() == answer.text
    assert isinstance(answer.end, End)
    assert answer.end.index == len(answer.tokens)
    assert (answer.end.usage.prompt_tokens, answer.end.usage.completion_tokens) == (7, 8), "the server's own figures"
    (body,) = servers[0].bodies
    assert [one["content"] for one in body["messages"]] == ["before", "answered", "hello"]
    assert (body["model"], body["max_tokens"], body["temperature"], body["stream"]) == ("chatty", 8, 0, True)


@pytest.mark.parametrize("cut", [1, 3, 12])
async def test_a_resumed_answer_continues_the_text(
    servers: list[OutsideServer], new_engine: NewEngine, cut: int
) -> None:
    generated = words(0, cut).encode()
    answer = await ask(new_engine(), job_of(max_tokens=20, generated=tuple(generated)))
    assert answer.text.startswith(WORDS[cut])
    assert servers[0].bodies[0]["messages"][-1] == {"role": "assistant", "content": generated.decode()}


async def test_a_server_that_cannot_continue_ends_a_resumed_answer_as_partial(new_engine: NewEngine) -> None:
    answer = await ask(new_engine(is_vllm=False), job_of(generated=tuple(b"w0 ")))
    assert (answer.reason, answer.text) == (FinishReason.PARTIAL, "")


@pytest.mark.parametrize("trouble", [*TROUBLES, "end", "500", "401", "html"])
async def test_a_failure_before_the_first_token_is_tried_again_elsewhere_unseen(
    servers: list[OutsideServer], new_engine: NewEngine, trouble: str
) -> None:
    servers[0].trouble = trouble
    engine = new_engine(2, silence_s=2.0 if trouble == "silent" else 60.0)
    answers = await asyncio.gather(*(ask(engine, job_of()) for _ in range(6)))
    assert {(answer.text, answer.reason) for answer in answers} == {(words(0, 8), "length")}


@pytest.mark.parametrize("trouble", [*TROUBLES, "end"])
async def test_a_failure_in_the_middle_is_continued_elsewhere_with_no_word_missing_or_repeated(
    servers: list[OutsideServer], new_engine: NewEngine, trouble: str
) -> None:
    servers[0].trouble, servers[0].after = trouble, 3
    engine = new_engine(2, silence_s=2.0 if trouble == "silent" else 60.0)
    for answer in await asyncio.gather(*(ask(engine, job_of(max_tokens=12)) for _ in range(4))):
        spoken = answer.text.split()
        assert spoken == [word.strip() for word in WORDS[: len(spoken)]]
        assert len(spoken) >= 11
        assert answer.reason == "length"


@pytest.mark.parametrize("trouble", TROUBLES)
async def test_a_failure_in_the_middle_ends_as_partial_where_no_server_can_continue(
    servers: list[OutsideServer], new_engine: NewEngine, trouble: str
) -> None:
    servers[0].trouble, servers[0].after = trouble, 3
    answer = await ask(new_engine(is_vllm=False, silence_s=2.0 if trouble == "silent" else 60.0), job_of())
    assert (answer.text, answer.reason) == (words(0, 3), FinishReason.PARTIAL)


async def test_servers_that_all_fail_are_one_error_in_bounded_time(
    servers: list[OutsideServer], new_engine: NewEngine
) -> None:
    servers[0].trouble = "500"
    answer = await ask(new_engine(patience_s=0.5), job_of())
    assert isinstance(answer.end, Failure)
    assert answer.end.code == "overloaded"
    assert len(servers[0].bodies) <= 4


async def test_an_absent_server_is_one_error_that_names_the_model(new_engine: NewEngine) -> None:
    engine = RemoteEngine(RemoteOptions("absent", "chatty", (f"http://127.0.0.1:{free_port()}/v1",), patience_s=0.3))
    answer = await ask(engine, job_of())
    await engine.stop()
    assert isinstance(answer.end, Failure)
    assert "absent" in answer.end.message


async def test_a_bad_request_is_not_tried_again_and_blames_no_server(
    servers: list[OutsideServer], new_engine: NewEngine
) -> None:
    servers[0].trouble = "400"
    engine = new_engine()
    answer = await ask(engine, job_of())
    assert answer.reason == "invalid_request"
    assert len(servers[0].bodies) == 1
    assert engine.has_room


@pytest.mark.parametrize(("room", "expected"), [(99, range(9)), (12, range(5, 9)), (4, range(7, 9)), (2, range(8, 9))])
async def test_older_turns_are_left_out_until_a_conversation_fits_its_server(
    servers: list[OutsideServer], new_engine: NewEngine, room: int, expected: range
) -> None:
    servers[0].room = room
    memory = [(f"q{number}", f"a{number}") for number in range(8)]
    built = PROMPTS.build("be kind", memory, "q8")
    answer = await ask(new_engine(), Job(id="r", prompt=built.ids, max_tokens=8, sampling=GREEDY))
    body = servers[0].bodies[-1]
    assert body["messages"][0] == {"role": "system", "content": "be kind"}
    asked = [one["content"] for one in body["messages"] if one["role"] == "user"]
    assert asked == [f"q{number}" for number in expected]
    assert (answer.text, answer.reason) == (words(0, 8), "length")


@pytest.mark.parametrize(
    "too_long",
    [
        (400, "This model's maximum context length is 64 tokens."),
        (422, "Input validation error: `inputs` must have less than 1024 tokens. Given: 1025"),  # TGI
        (413, "Request too large for model: Limit 6000, Requested 9000"),  # Groq
        (429, "Request too large for gpt-4o on tokens per min (TPM): Limit 30000, Requested 60000."),  # OpenAI
    ],
)
async def test_a_prompt_that_alone_does_not_fit_its_server_is_the_requests_fault(
    servers: list[OutsideServer], new_engine: NewEngine, too_long: tuple[int, str]
) -> None:
    servers[0].room, servers[0].too_long = 0, too_long
    engine = new_engine()
    answer = await ask(engine, job_of())
    assert answer.reason == "invalid_request"
    assert [len(body["messages"]) for body in servers[0].bodies] == [3, 1]
    assert engine.has_room, "no other request waits for it"


async def test_a_server_gets_the_requests_trace_and_its_figures_are_told(
    servers: list[OutsideServer], new_engine: NewEngine
) -> None:
    engine = new_engine(2)
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    await ask(engine, job_of(trace=(("traceparent", trace.encode()),)))
    assert [server.headers.get("traceparent") for server in servers[:2] if server.bodies] == [trace]
    for server in servers[:2]:
        server.trouble = "500"
    await ask(engine, job_of())
    figures = engine.stats.servers
    assert [one.address for one in figures] == [server.url for server in servers[:2]]
    assert sum(one.failures for one in figures) >= 2
    assert any(one.first_token_s > 0 for one in figures)
    assert ModelServer("http://user:secret@example.com/v1?key=x", None).stats.address == "http://example.com/v1"


async def test_a_full_server_is_left_alone_for_as_long_as_it_asks_and_its_requests_wait(
    servers: list[OutsideServer], new_engine: NewEngine
) -> None:
    servers[0].trouble = "429"
    engine = new_engine(patience_s=10.0)
    asking = asyncio.ensure_future(ask(engine, job_of()))
    async with asyncio.timeout(60):
        while engine.has_room:
            await asyncio.sleep(0.01)
    servers[0].trouble = ""
    answer = await asking
    assert (answer.text, answer.reason) == (words(0, 8), "length")
    *_, first, second = servers[0].asked_at
    assert second - first >= 0.2, "the server's Retry-After"


async def test_a_server_that_keeps_failing_is_left_out_and_comes_back_after_a_probe(
    servers: list[OutsideServer], new_engine: NewEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("models.remote.servers._PROBE_S", 0.2)
    servers[0].trouble = "500"
    engine = new_engine(2)
    await asyncio.gather(*(ask(engine, job_of()) for _ in range(12)))
    bad = engine._servers._all[0]
    assert bad.circuit is Circuit.OPEN
    asked = len(servers[0].bodies)
    await asyncio.gather(*(ask(engine, job_of()) for _ in range(6)))
    assert len(servers[0].bodies) == asked
    servers[0].trouble = ""
    async with asyncio.timeout(60):
        while bad.circuit is Circuit.OPEN:
            await asyncio.sleep(0.05)
    assert servers[0].probes > 0


async def test_prompts_that_fail_one_user_leave_the_servers_to_the_others(
    servers: list[OutsideServer], new_engine: NewEngine
) -> None:
    for count in (1, 2):
        engine = new_engine(count)
        for server in servers:
            server.trouble = "500 to chats"
        answers = [await ask(engine, job_of(id=f"r{number}", user="mallory")) for number in range(5)]
        assert {answer.reason for answer in answers} == {"engine_error"}
        assert all(one.is_asked for one in engine.stats.servers)
        for server in servers:
            server.trouble = ""
        assert (await ask(engine, job_of(user="nina"))).reason == "length"


async def test_a_server_that_is_down_is_noticed_by_a_lone_user(
    servers: list[OutsideServer], new_engine: NewEngine
) -> None:
    servers[0].trouble = "500"
    engine = new_engine(patience_s=0.3)
    assert (await ask(engine, job_of(user="nina"))).reason == "overloaded"
    assert not engine.has_room


async def test_a_server_without_a_list_of_models_answers_a_probe(
    servers: list[OutsideServer], new_engine: NewEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("models.remote.servers._PROBE_S", 0.1)
    servers[0].trouble, servers[0].models_status = "500 to chats", 404
    engine = new_engine(patience_s=2.0)
    for user in ("nina", "olaf", "pia"):
        await ask(engine, job_of(id=user, user=user))
    servers[0].trouble = ""
    async with asyncio.timeout(60):
        while (await ask(engine, job_of(user="nina"))).reason != "length":
            pass


async def test_a_cancelled_answer_ends_with_its_text_and_closes_its_connection(
    servers: list[OutsideServer], new_engine: NewEngine
) -> None:
    servers[0].pause_s = 0.02
    engine = new_engine()
    (stream,) = engine.submit([job_of(max_tokens=150)])
    text, end = "", None
    async for event in stream:
        text += event.text if isinstance(event, Delta | End) else ""
        end = event
        if text and isinstance(event, Delta):
            stream.cancel()
    assert isinstance(end, End)
    assert end.reason is FinishReason.CANCELLED
    assert text
    async with asyncio.timeout(60):
        while not servers[0].left:
            await asyncio.sleep(0.02)
    assert engine.stats.running == 0


async def test_a_raw_prompt_is_a_completion(servers: list[OutsideServer], new_engine: NewEngine) -> None:
    answer = await ask(new_engine(), job_of(prompt=PROMPTS.raw("w0 w1 ").ids, max_tokens=3))
    assert answer.text == words(2, 5)
    assert servers[0].bodies[0]["prompt"] == "w0 w1 "


@pytest.mark.parametrize(
    ("fields", "is_vllm", "name"),
    [
        ({"sampling": replace(GREEDY, logprobs=1)}, True, "logprobs"),
        ({"sampling": replace(GREEDY, logit_bias=((5, 1.0),))}, True, "logit_bias"),
        ({"prompt_logprobs": 1}, True, "prompt_logprobs"),
        ({"sampling": replace(GREEDY, top_k=5)}, False, "top_k"),
        ({"min_tokens": 5}, False, "min_tokens"),
        ({"constraint": OutputConstraint(ConstraintKind.REGEX, "a+")}, False, "response_format"),
    ],
)
async def test_what_a_server_cannot_do_is_refused_by_name(
    new_engine: NewEngine, fields: dict[str, object], is_vllm: bool, name: str
) -> None:
    answer = await ask(new_engine(is_vllm=is_vllm), job_of(**fields))
    assert isinstance(answer.end, Failure)
    assert answer.end.code == "invalid_request"
    assert answer.end.message.startswith(f"{name}: ")


async def test_parameters_are_passed_on_in_the_servers_dialect(
    servers: list[OutsideServer], new_engine: NewEngine
) -> None:
    sampling = Sampling(0.5, 0.9, 7, 3, 0.1, 0.2, 0.3, 1.1)
    choices = OutputConstraint(ConstraintKind.CHOICES, '["a", "b"]')
    await ask(new_engine(), job_of(sampling=sampling, stop=("x",), min_tokens=2, constraint=choices))
    schema = OutputConstraint(ConstraintKind.JSON, '{"type": "object"}')
    await ask(new_engine(is_vllm=False), job_of(constraint=schema, stop=("x",)))
    first, second = servers[0].bodies
    assert {name: first[name] for name in ("temperature", "top_p", "top_k", "seed", "min_p", "min_tokens")} == {
        "temperature": 0.5, "top_p": 0.9, "top_k": 7, "seed": 3, "min_p": 0.1, "min_tokens": 2,
    }  # fmt: skip
    assert first["structured_outputs"] == {"choice": ["a", "b"]}
    assert second["response_format"]["json_schema"]["schema"] == {"type": "object"}
    assert "stop" not in first, "the end of a text with token ids is determined here"
    assert second["stop"] == ["x"]


async def test_a_stop_string_ends_the_answer_before_it_and_leaves_the_server(
    servers: list[OutsideServer], new_engine: NewEngine
) -> None:
    for tells_ids in (False, True):
        servers[0].tells_ids = tells_ids
        answer = await ask(new_engine(), job_of(max_tokens=100, stop=("3 w4",)))
        assert (answer.text, answer.reason) == ("w0 w1 w2 w", "stop")


async def test_an_answer_with_token_ids_goes_on_by_them(servers: list[OutsideServer], new_engine: NewEngine) -> None:
    servers[0].tells_ids = True
    whole = await ask(new_engine(), job_of(max_tokens=12))
    assert whole.tokens == [BYTES + number for number in range(12)]
    assert isinstance(whole.end, End)
    for cut in (1, 5, 11):
        rest = await ask(new_engine(), job_of(max_tokens=12, generated=tuple(whole.tokens[:cut]), min_tokens=12))
        assert whole.tokens[:cut] + rest.tokens == whole.tokens
        assert words(0, cut) + rest.text == whole.text
        assert rest.end.index == 12
        body = servers[0].bodies[-1]
        assert body["prompt"] == [*PROMPT_IDS, *range(cut)]
        assert (body["max_tokens"], body["min_tokens"]) == (12 - cut, 12 - cut)


async def test_a_stop_string_that_began_before_the_crash_is_seen_by_the_ids(
    servers: list[OutsideServer], new_engine: NewEngine
) -> None:
    servers[0].tells_ids = True
    begun = tuple(BYTES + number for number in range(4))
    answer = await ask(new_engine(), job_of(max_tokens=12, generated=begun, stop=("w3 w4",)))
    assert (answer.text, answer.reason) == ("", "stop"), "its text had been held back"


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({}, FinishReason.LENGTH),
        ({"constraint": OutputConstraint(ConstraintKind.REGEX, "(w[0-9] )+")}, FinishReason.LENGTH),
        ({"max_tokens": 12, "stop": ("w3 w4",)}, FinishReason.STOP),
    ],
)
async def test_what_lacks_its_end_alone_gets_no_further_token(
    servers: list[OutsideServer], new_engine: NewEngine, fields: dict[str, object], reason: FinishReason
) -> None:
    servers[0].tells_ids = True
    given = tuple(BYTES + number for number in range(5))
    answer = await ask(new_engine(), job_of(generated=given, **{"max_tokens": 5, **fields}))
    assert (answer.tokens, answer.text, answer.reason, servers[0].bodies) == ([], "", reason, [])


@pytest.mark.parametrize("trouble", TROUBLES)
async def test_a_server_that_fails_in_the_middle_is_followed_by_the_ids(
    servers: list[OutsideServer], new_engine: NewEngine, trouble: str
) -> None:
    servers[0].trouble, servers[0].after = trouble, 3
    for server in servers:
        server.tells_ids = True
    engine = new_engine(2, silence_s=2.0, patience_s=30.0)  # a server's silence is waited for more than once
    for answer in await asyncio.gather(*(ask(engine, job_of(max_tokens=12)) for _ in range(4))):
        assert (answer.text, answer.reason) == (words(0, 12), "length")
        assert answer.tokens == [BYTES + number for number in range(12)]


@pytest.mark.parametrize(("temperature", "expected"), [(1.0, [3]), (0.0, [])])
async def test_readers_are_told_where_another_server_goes_on_with_other_words(
    servers: list[OutsideServer], new_engine: NewEngine, temperature: float, expected: list[int]
) -> None:
    """Its first token waits to be read apart, so that the notice stands before it."""
    servers[0].trouble, servers[0].after = "close", 3
    for server in servers:
        server.tells_ids = True
    jobs = [job_of(max_tokens=12, sampling=Sampling(temperature), user=f"{number}") for number in range(4)]
    streams = new_engine(2).submit(jobs)
    found = []
    for stream in streams:
        deltas = [event async for event in stream if isinstance(event, Delta)]
        found.append([delta.index for delta in deltas if delta.redraws])
    assert {tuple(one) for one in found} <= {(), tuple(expected)}
    assert tuple(expected) in {tuple(one) for one in found}


async def test_what_another_model_has_begun_is_text_and_what_follows_are_ids(
    servers: list[OutsideServer], new_engine: NewEngine
) -> None:
    servers[0].tells_ids = True
    begun = words(0, 2).encode()
    first = await ask(new_engine(), job_of(max_tokens=12, generated=tuple(begun)))
    assert first.tokens[0] == BYTES + 2
    await ask(new_engine(), job_of(max_tokens=12, generated=(*begun, *first.tokens[:3])))
    asked, body = servers[0].tokenized[-1], servers[0].bodies[-1]
    assert (asked["continue_final_message"], asked["messages"][-1]["content"]) == (True, words(0, 2))
    assert body["prompt"] == [*PROMPT_IDS, 2, 3, 4]


CHOICE = OutputConstraint(ConstraintKind.CHOICES, '["a", "b"]')


@pytest.mark.parametrize(
    ("fields", "options"),
    [
        ({"constraint": CHOICE}, {}),
        ({"sampling": Sampling(temperature=1.0)}, {"redraws": False}),
        ({"sampling": Sampling(0, frequency_penalty=0.5)}, {"redraws": False}),
    ],
)
async def test_an_answer_that_cannot_go_on_as_it_was_ends_as_partial(
    servers: list[OutsideServer], new_engine: NewEngine, fields: dict[str, object], options: dict[str, object]
) -> None:
    servers[0].tells_ids = True
    answer = await ask(new_engine(**options), job_of(generated=(BYTES, BYTES + 1), **fields))
    assert (answer.reason, servers[0].bodies) == (FinishReason.PARTIAL, [])


@pytest.mark.parametrize("trouble", ["400", "no tokenize"])
async def test_a_resumed_answer_is_never_a_bad_request(
    servers: list[OutsideServer], new_engine: NewEngine, trouble: str
) -> None:
    servers[0].tells_ids, servers[0].trouble = True, trouble
    answer = await ask(new_engine(patience_s=0.5), job_of(generated=(BYTES, BYTES + 1)))
    assert answer.reason == FinishReason.PARTIAL


async def test_a_resumed_answer_draws_other_noise_than_its_beginning(
    servers: list[OutsideServer], new_engine: NewEngine
) -> None:
    servers[0].tells_ids = True
    sampled = Sampling(temperature=1.0, seed=3)
    await ask(new_engine(), job_of(sampling=sampled))
    await ask(new_engine(), job_of(sampling=sampled, generated=(BYTES,)))
    assert servers[0].bodies[0]["seed"] == 3
    assert servers[0].bodies[1]["seed"] != 3
