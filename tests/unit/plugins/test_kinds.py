"""Plug-ins of each kind but features, as their packages bring them: they work, and whatever they do costs one call."""

from __future__ import annotations

import asyncio
import importlib
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from parley_client.plugins import Judge, Kind, PluginError

from app.commands import parley
from app.features.guard.fair_order import Asker
from app.features.guard.judges.judge import JudgeError
from app.features.guard.judges.judges import Judges
from app.features.guard.judges.plugged import PluggedJudge
from app.foreign.formats import decoder_of, encoder_of, fields_of
from app.plugins.known import own
from app.plugins.running import BriefCalls
from app.policy.check import checked
from app.policy.file import ModelSpec, Policy, PolicyError
from app.policy.foreign import EgressRules, IntakeRules
from app.policy.guard_rules import GuardRules
from app.search.opening import check_store, open_vectors
from app.search.vector_store import IndexAwayError, IndexRefusedError, Query
from app.serving.loading import LoadError, load_models
from app.serving.plugged_engine import PluggedEngine
from app.settings import Settings
from app.wire.error import WireError
from models.interface.generation import Delta, End, Failure, FinishReason, Job, Sampling
from models.tools.parser import ToolCallParser
from models.tools.plugged import form_named
from tables.erasures import Scope
from tests.plugin_packages import on_the_path, put_package
from tests.simulation.milvus import SameVector

SOURCE = """
import threading
import time
from parley_client.plugins import Engine, Found, Judge, NotReadable, NoVerdict, RecordFormat, Store, ToolFormat, turn

held = threading.Event()


class Words(Judge):
    categories = ("rude", "long")

    def __init__(self, settings):
        self.words, self.how, self.closed = settings.get("words", []), settings.get("how"), False

    async def scores(self, texts):
        if self.how == "raises":
            raise ValueError(texts[0])
        if self.how == "exits":
            raise SystemExit(3)
        if self.how == "no verdict":
            raise NoVerdict("the list is away")
        if self.how == "beyond":
            return [{"rude": 2.0, "long": 0.0}] * len(texts)
        if self.how == "fewer":
            return []
        if self.how == "none":
            return None
        return [{"rude": float(any(w in t for w in self.words)), "long": min(1.0, len(t) / 100)} for t in texts]

    async def close(self):
        self.closed = True


class Near(Words):
    blocks = False
    width = 1

    async def scores(self, texts):
        for _ in texts:
            async with turn():
                self.thread = threading.current_thread()
        return await super().scores(texts)


class Lines(RecordFormat):
    def __init__(self, schema):
        self.sign = schema or "="

    def read(self, value):
        if value == b"hang":
            held.wait(60)
        if value == b"loop":
            fields = {}
            fields["a"] = fields
            return fields
        pairs = [line.partition(self.sign) for line in value.decode().splitlines()]
        if not all(sign for _, sign, _ in pairs):
            raise NotReadable("a line without a sign")
        return {name: text for name, _, text in pairs}

    def write(self, fields):
        if any("\\n" in str(one) for one in fields.values()):
            raise NotReadable("a field has several lines")
        return "\\n".join(f"{name}{self.sign}{text}" for name, text in fields.items()).encode()


class Memory(Store):
    rows = {}

    def __init__(self, options):
        self.options = options

    async def upsert(self, rows):
        if any(row["text"] == "refused" for row in rows):
            raise ValueError("refused")
        if any(row["text"] == "away" for row in rows):
            raise OSError("away")
        self.rows.update((row["turn_id"], row) for row in rows)

    async def erase(self, user_id, conversation_id, until):
        for key, row in list(self.rows.items()):
            mine = row["user_id"] == user_id and conversation_id in {None, row["conversation_id"]}
            if mine and row["asked_at"] <= until:
                del self.rows[key]

    async def expire(self, before):
        for key in [key for key, row in self.rows.items() if row["created_at"] < before]:
            del self.rows[key]

    async def search(self, search):
        return [Found(row, 1.0) for row in self.rows.values()]

    async def fetch(self, turn_ids):
        return [self.rows[key] for key in turn_ids if key in self.rows]


class Echo(Engine):
    version, context_length, continues = "echo@1", 10000, True

    def __init__(self, settings):
        self.how = settings.get("how")

    async def write(self, job):
        words = ("you said: " + job.messages[-1]["content"]).split(" ")[: job.max_tokens]
        rest = " ".join(words)
        assert rest.startswith(job.written)
        for at, one in enumerate(rest[len(job.written):]):
            if self.how == "raises" and at == 3:
                raise KeyError(one)
            if self.how == "number" and at == 3:
                one = 7
            yield one


class NoEngine:
    def __init__(self, settings):
        pass


form = ToolFormat("<call>", " ", ": ", "", " & ", "</call>", leads=True, names="bare")
no_form = ToolFormat("", "", "", "", "")
"""
POINTS = {
    Kind.JUDGES: {"words": "kinds:Words", "near": "kinds:Near"},
    Kind.RECORD_FORMATS: {"lines": "kinds:Lines"},
    Kind.STORES: {"memory": "kinds:Memory"},
    Kind.ENGINES: {"echo": "kinds:Echo", "none": "kinds:NoEngine"},
    Kind.TOOL_FORMATS: {"angled": "kinds:form", "empty": "kinds:no_form"},
}
SETTINGS = Settings(_env_file=None, engine="paced")


@pytest.fixture(autouse=True)
def installed(tmp_path: Path) -> Iterator[None]:
    put_package(tmp_path, SOURCE, POINTS, "kinds")
    with on_the_path(tmp_path):
        yield


async def test_a_judge_gives_categories_beside_the_own_ones() -> None:
    rules = GuardRules(prompt={"rude": "block", "long": "flag"}, judges={"words": {"words": ["fool"]}})
    assert [*rules.mistakes()] == []
    judges, asker = Judges(rules), Asker("ann", "r1")
    assert await judges.categories_of(["you fool"], frozenset({"rude", "long"}), asker) == {"rude"}
    assert await judges.categories_of(["x" * 80], frozenset({"rude", "long"}), asker) == {"long"}
    await judges.close()


@pytest.mark.parametrize("how", ["raises", "beyond", "fewer", "none"])
async def test_a_judge_that_fails_gives_no_verdict_and_quotes_no_text(how: str) -> None:
    with pytest.raises(JudgeError) as caught:
        await PluggedJudge("words", {"how": how}).scores(["a secret"], nullcontext)
    assert "words" in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("name", ["words", "near"])
async def test_a_judge_says_why_it_has_no_verdict_and_ends_no_worker(name: str) -> None:
    for how, why in (("no verdict", "^the list is away$"), ("exits", f"{name} failed.*SystemExit")):
        with pytest.raises(JudgeError, match=why):
            await PluggedJudge(name, {"how": how}).scores(["a secret"], nullcontext)


async def test_a_judge_that_does_not_block_takes_turns_where_the_answers_are() -> None:
    near, turns = PluggedJudge("near", {}), list[str]()

    @asynccontextmanager
    async def counted() -> AsyncIterator[None]:
        turns.append("begun")
        yield

    await near.scores(["a", "b", "c"], counted)
    own: Any = near._judge
    assert (turns, own.thread, near.width) == (["begun"] * 3, threading.current_thread(), 1)


async def test_three_of_parleys_own_judges_come_through_the_door() -> None:
    names = {"profanity", "classifier", "moderation"}
    assert {one.name for one in own(Kind.JUDGES)} == names
    assert all(Judge in one.load().__mro__ for one in own(Kind.JUDGES))
    turns = list[str]()

    @asynccontextmanager
    async def counted() -> AsyncIterator[None]:
        turns.append("begun")
        yield

    harmless = "This is a sentence without harm, as many of this length are. " * 200
    await PluggedJudge("profanity", {}).scores([harmless], counted)
    assert len(turns) > 3, "others have their turn within a long text"


def test_a_category_that_no_judge_has_is_told() -> None:
    with pytest.raises(JudgeError, match=r"no judge knows odd; those of the policy know rude, long"):
        Judges(GuardRules(prompt={"odd": "block"}, judges={"words": {}}))


def _intake(**more: Any) -> IntakeRules:
    return IntakeRules(topic="mail", fields={"prompt": "text"}, format="lines", **more)


def test_records_in_a_format_of_another_package_are_read_and_written() -> None:
    egress = EgressRules(topic="out", fields={"a": "answer", "u": "user_id"}, format="lines", schema=":")
    written = encoder_of(egress)({"a": "yes", "u": "ann"})
    assert written == b"a:yes\nu:ann"
    assert fields_of(decoder_of(_intake()), b"text=why?\nuser=ann").fields == {"text": "why?", "user": "ann"}


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (b"no sign", "a line without a sign"),
        (b"\xff\xfe", r"the plug-in lines failed on it \(UnicodeDecodeError\)"),
        (b"loop", "read what no JSON object holds"),
        (b"hang", "did not answer in time"),
    ],
)
def test_whatever_the_bytes_are_they_are_one_dead_letter(
    value: bytes, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(BriefCalls, "brief_s", 0.1 if value == b"hang" else 60.0)
    decode = decoder_of(_intake())
    with pytest.raises(WireError, match=why):
        fields_of(decode, value)  # a hang is not waited for: it goes on until the test has ended
    monkeypatch.setattr(BriefCalls, "brief_s", 60.0)
    assert fields_of(decode, b"text=x").fields == {"text": "x"}
    importlib.import_module("kinds").held.set()


def _row(number: int, text: str = "x", **more: Any) -> dict[str, Any]:
    names = {"user_id": "ann", "conversation_id": "c", "role": "user", "tenant": "", "model_version": "m@1"}
    times = {"created_at": number, "asked_at": number}
    return {"turn_id": f"ann/r{number}:user", "text": text, **names, **times, "embedding": [1.0, 0, 0, 0], **more}


async def test_a_store_holds_the_history() -> None:
    store, same = open_vectors(SETTINGS.model_copy(update={"store": "memory"})), SameVector()
    (vector,) = await same.embed(["x"])
    query = Query(user_id="ann", text="x")
    with pytest.raises(IndexAwayError, match="not open yet"):
        await store.check()
    await store.open(same)
    await store.upsert([_row(1), _row(2), _row(3), _row(4, user_id="bob", turn_id="bob/r4:user")])
    hits = await store.search(query, vector, same)
    assert [one.request_id for one in hits] == ["r1", "r2", "r3"], "the other user's row is left out here, too"
    assert await store.search(Query(user_id="ann", text="x", erased_at=3), vector, same) == []
    await store.erase(Scope("ann"), 1, 9)
    await store.expire(3)
    assert [one["turn_id"] for one in await store.fetch(["ann/r1:user", "ann/r2:user", "ann/r3:user"])] == [
        "ann/r3:user"
    ]
    with pytest.raises(IndexRefusedError, match="the plug-in memory failed"):
        await store.upsert([_row(5, "refused")])
    with pytest.raises(IndexAwayError, match="the plug-in memory failed"):
        await store.upsert([_row(5, "away")])
    with pytest.raises(IndexRefusedError, match="fresh PARLEY_MILVUS_COLLECTION"):
        store.named("other")
    await store.close()


def test_a_store_that_is_not_there_stops_the_start() -> None:
    settings = SETTINGS.model_copy(update={"store": "nowhere"})
    with pytest.raises(
        PluginError, match=r"no installed package has 'nowhere' \(parley.stores\); there are: memory, mil"
    ):
        check_store(settings)
    with pytest.raises(IndexRefusedError, match="PARLEY_STORE: no installed package"):
        open_vectors(settings)


def _engine(**settings: Any) -> PluggedEngine:
    policy = Policy(models={"own": ModelSpec(engine="echo", settings=settings)})
    engine = load_models(SETTINGS, lambda _: None, policy).find("own").engine  # type: ignore[union-attr]
    assert isinstance(engine, PluggedEngine)
    return engine


def _job(generated: bytes = b"", **more: Any) -> Job:
    prompt = tuple(b'{"messages":[{"role":"user","content":"where is it"}]}')
    return Job("ann/r1", prompt, 50, generated=tuple(generated), sampling=Sampling(), **more)


async def _answer(engine: PluggedEngine, job: Job) -> tuple[str, End | Failure]:
    text = ""
    async for event in engine.submit([job])[0]:
        if not isinstance(event, Delta):
            return text, event
        assert bytes(event.tokens).decode() == event.text
        text += event.text
    raise AssertionError("no end")


async def test_an_engine_answers_and_goes_on_where_readers_are() -> None:
    engine = _engine()
    text, end = await _answer(engine, _job())
    assert (text, end.index) == ("you said: where is it", 21)
    assert isinstance(end, End)
    assert end.reason is FinishReason.STOP
    for cut in range(1, 21):
        assert (await _answer(engine, _job(text[:cut].encode())))[0] == text[cut:]
    assert (await _answer(engine, _job(stop=("where",))))[0] == "you said: "
    await engine.stop()


@pytest.mark.parametrize(("how", "why"), [("raises", "failed on this request (KeyError)"), ("number", "no text")])
async def test_an_engine_that_fails_ends_its_job_alone(how: str, why: str) -> None:
    engine = _engine(how=how)
    text, end = await _answer(engine, _job())
    assert isinstance(end, Failure)
    assert (text, why in end.message, end.code) == ("you", True, "engine_error")
    await engine.stop()


async def test_an_engine_is_stopped() -> None:
    engine = _engine()
    stream = engine.submit([_job()])[0]
    stream.cancel(FinishReason.CANCELLED)
    assert [event async for event in stream][-1].index == 0
    await engine.stop()


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"engine": "tgi"}, 'engine: is "tgi"; valid are "torch", "vllm", "paced", "openai", "echo", "none"'),
        ({"engine": "echo", "path": "demo"}, "path does not apply to engine = 'echo'; it has settings"),
        ({"path": "demo", "settings": {"a": 1}}, "settings is for an engine of another package"),
    ],
)
def test_mistakes_about_engines_are_told(fields: dict[str, Any], why: str) -> None:
    assert [one.why for one in ModelSpec(**fields).mistakes()] == [why]


def test_what_is_no_engine_stops_the_start() -> None:
    policy = Policy(models={"own": ModelSpec(engine="none")})
    with pytest.raises(LoadError, match=r"policy: models.own: the plug-in 'none' of kinds 1.0 .* is no engine"):
        load_models(SETTINGS, lambda _: None, policy)


def test_a_form_of_calls_is_written_and_read() -> None:
    assert Settings(_env_file=None, tool_format="angled").tool_format == "angled"
    form = form_named("angled")
    text = form.written([("look_up", '{"a": 1}'), ("look_up", "{}")])
    assert text == '<call> look_up: {"a": 1} & look_up: {}</call>'
    parser = ToolCallParser(form)
    parser.step(text)
    assert [(one.name, one.arguments) for one in parser.calls] == [("look_up", '{"a": 1}'), ("look_up", "{}")]
    with pytest.raises(PluginError, match="it needs trigger and middle"):
        form_named("empty")
    with pytest.raises(ValueError, match="must be empty or one of hermes"):
        Settings(_env_file=None, tool_format="none")


def test_a_policy_names_formats_that_are_installed(tmp_path: Path) -> None:
    path = tmp_path / "policy.toml"
    table = '[[intake]]\ntopic = "mail"\nfields = {prompt = "a"}\nuser_id = "u"\nformat = '
    path.write_text(f'{table}"lines"')
    assert checked(path, SETTINGS)[1] == []
    path.write_text(f'{table}"xml"')
    (why,) = checked(path, SETTINGS)[1]
    assert why.endswith('format: is "xml"; valid are "json", "avro", "protobuf", "lines"')
    with pytest.raises(PolicyError, match="no installed package has 'xml'"):
        decoder_of(IntakeRules(topic="mail", fields={"prompt": "a"}, format="xml"))


def test_the_command_lists_them() -> None:
    said = CliRunner().invoke(parley, ["plugins"])
    assert said.exit_code == 0, said.output
    assert "stores\tmemory\tkinds 1.0\tkinds:Memory" in said.output
    assert "milvus" not in said.output


def test_the_command_tells_what_does_not_load(tmp_path: Path) -> None:
    put_package(tmp_path, "import nothing_of_this_name", {Kind.JUDGES: {"broken": "bad:X"}}, "bad")
    said = CliRunner().invoke(parley, ["plugins"])
    assert said.exit_code == 2
    assert "cannot be loaded: ModuleNotFoundError" in said.output


def test_a_hang_is_left_and_the_next_call_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BriefCalls, "brief_s", 0.05)
    judge = PluggedJudge("words", {})
    monkeypatch.setattr(judge._room, "_bound_s", 0.05)
    monkeypatch.setattr(judge._judge, "scores", lambda texts: time.sleep(0.3))
    with pytest.raises(JudgeError, match="did not answer within"):
        asyncio.run(judge.scores(["x"], nullcontext))
