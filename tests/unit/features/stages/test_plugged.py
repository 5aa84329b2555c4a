"""Features of other packages: decided once, in the log, and contained whatever they do."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from parley_client.plugins import Kind, PluginError

from app.features.admission import Admitting
from app.features.best_of import BestOf
from app.features.plugged import PluggedIn, plugin_families
from app.plugins.known import check_names
from app.plugins.running import PluginRoom
from app.policy.file import Policy, PolicyError
from app.wire.event import TokenEvent
from models.embedder import load_embedder
from models.interface.generation import Job
from tables.records import Conversation, KeptTurn, Table
from tests.plugin_packages import on_the_path, put_package
from tests.unit.answering.bench import (
    ASKED_AT,
    SETTINGS,
    BenchPartition,
    Told,
    answered,
    placeholders_in,
    same_at_every_cut,
)
from tests.unit.answering.word_engine import model, words_of
from tests.unit.features.stages.features import EMAIL, guard

SOURCE = """
import sys
import threading
from parley_client.plugins import Feature, NoVectors, Prompt, RateLimited, Refused


class Documents(Feature):
    def __init__(self, settings):
        self.texts, self.told, self.forgotten, self.asked = dict(settings["texts"]), [], [], []

    async def decide(self, asked):
        self.asked.append(asked)
        return {"found": [text for word, text in self.texts.items() if word in asked.prompt]}

    def rewrite(self, prompt, decision):
        return Prompt(prompt.prompt, " ".join(decision["found"]))

    async def answered(self, asked, decision, answer):
        self.told.append((asked, decision, answer))

    def forget(self, user_id):
        self.forgotten.append(user_id)

    def figures(self):
        return {"texts": len(self.texts)}


class Loud(Feature):
    def __init__(self, settings):
        pass

    def rewrite(self, prompt, decision):
        return Prompt(prompt.prompt.upper())


class Near(Feature):
    blocks = False

    def __init__(self, settings):
        self.threads = []

    async def decide(self, asked):
        self.threads.append(threading.current_thread())

    def rewrite(self, prompt, decision):
        self.threads.append(threading.current_thread())
        return prompt


class Meeting(Feature):
    # Each waits for the other.
    barrier = threading.Barrier(2)

    def __init__(self, settings):
        pass

    async def decide(self, asked):
        self.barrier.wait(10)
        raise Refused("not by " + str(threading.current_thread().name))


class Idle(Feature):
    def __init__(self, settings):
        pass


class Door(Feature):
    def __init__(self, settings):
        self.closed_to, self.sent = settings["closed_to"], []

    async def admit(self, sender):
        self.sent.append(sender)
        if sender.user_id in self.closed_to:
            raise RateLimited("come again")


class Ranking(Feature):
    def __init__(self, settings):
        self.which, self.seen = settings.get("which"), []

    def begin(self, worker):
        self.worker = worker

    async def choose(self, question, candidates, earlier):
        self.seen.append((question, candidates, earlier))
        lengths = [len(one.text) for one in candidates]
        try:
            vectors = await self.worker.embed([question])
        except NoVectors:
            vectors = []
        self.vectors = vectors
        return lengths.index(min(lengths)) if self.which is None else self.which


class Unready(Feature):
    def __init__(self, settings):
        pass

    def begin(self, worker):
        raise OSError("no disk")


class Wrong(Feature):
    def __init__(self, settings):
        self.how, self.released, self.has_ended = settings["how"], threading.Event(), False

    async def decide(self, asked):
        if self.how == "raises":
            raise KeyError(asked.prompt)
        if self.how == "exits":
            sys.exit(3)
        if self.how == "refuses":
            raise Refused("no questions\\nplease")
        if self.how == "blocks":
            self.released.wait(60)
            self.has_ended = True
        return {"large": "x" * 70000, "object": object()}.get(self.how)

    def rewrite(self, prompt, decision):
        return "a text" if self.how == "text" else prompt
"""
TEXTS = {"texts": {"why": "Because of the moon."}}
POINTS = {"documents": "example:Documents", "loud": "example:Loud", "wrong": "example:Wrong", "gone": "nowhere:X"}
POINTS |= {"near": "example:Near", "left": "example:Meeting", "right": "example:Meeting", "idle": "example:Idle"}
POINTS |= {"door": "example:Door", "ranking": "example:Ranking", "unready": "example:Unready"}


@pytest.fixture(autouse=True)
def installed(tmp_path: Path) -> Iterator[None]:
    put_package(tmp_path, SOURCE, {Kind.FEATURES: POINTS})
    with on_the_path(tmp_path):
        yield


def plugged(**tables: dict[str, Any]) -> PluggedIn:
    return PluggedIn(Policy(plugins=tables))


async def _prompted(*features: PluggedIn, **how: Any) -> tuple[Told, str]:
    one = model()
    told = await answered(*features, models=[one], **how)
    return told, words_of(one).prompts[0] if words_of(one).prompts else ""


async def test_the_decision_stands_in_the_plan_before_the_prompt_is_built() -> None:
    told, prompt = await _prompted(plugged(documents=TEXTS))
    assert told.plan.plugins == {"documents": {"found": ["Because of the moon."]}}
    assert "Because of the moon." in prompt
    assert told.turn is not None
    assert (told.turn.prompt, told.row.prompt if told.row else None) == ("why?", "why?")


@pytest.mark.parametrize("fields", [{}, {"prompt": None, "messages": [{"role": "user", "content": "why?"}]}])
async def test_several_change_the_prompt_in_the_order_of_the_policy(fields: dict[str, Any]) -> None:
    told, prompt = await _prompted(plugged(documents=TEXTS, loud={}), **fields)
    assert list(told.plan.plugins or {}) == ["documents", "loud"]
    assert "WHY?" in prompt
    assert "moon" not in prompt


async def test_all_decide_at_once_and_the_first_of_the_policy_has_the_word() -> None:
    told = await answered(plugged(right={}, left={}))
    assert told.end.error is not None
    assert (told.code, told.end.error.message) == ("invalid_request", "not by plug-in right")


async def test_one_that_does_not_block_runs_where_the_answers_do() -> None:
    feature = plugged(near={})
    await answered(feature)
    own: Any = feature.on["near"].feature
    assert own.threads == [threading.current_thread()] * 2
    assert feature.on["near"].room.calls.done == 2


async def test_a_method_that_is_left_out_is_not_called() -> None:
    feature = plugged(idle={})
    told = await answered(feature)
    feature.forget("ann")
    assert told.plan.plugins is None
    assert feature.on["idle"].room._loop is None


async def test_one_that_admits_sees_no_words_and_is_asked_before_all_others() -> None:
    feature = plugged(door={"closed_to": ["bob"]}, documents=TEXTS)
    asked: dict[str, Any] = {"models": [model()], "prompt": "why, bob?", "priority": "batch"}
    told = [await answered(Admitting(feature), feature, user_id=user, **asked) for user in ("ann", "bob")]
    door, documents = (feature.on[name].feature for name in ("door", "documents"))
    assert [one.code for one in told] == [None, "rate_limited"]
    assert list(told[0].plan.plugins or {}) == ["documents"]
    assert [one.user_id for one in documents.asked] == ["ann"]  # type: ignore[attr-defined]
    assert [(one.user_id, one.priority) for one in door.sent] == [("ann", "batch"), ("bob", "batch")]  # type: ignore[attr-defined]
    assert "why" not in str(door.sent)  # type: ignore[attr-defined]


async def test_what_was_admitted_is_not_asked_about_by_the_next_owner() -> None:
    whole = await answered(plugged())
    closed = plugged(door={"closed_to": ["ann"]})
    assert (await answered(Admitting(closed), closed, before=whole.events[:2])).text == whole.text


async def test_one_of_the_policy_chooses_instead_of_parleys_own() -> None:
    def says(job: Job) -> list[str]:
        return ["word"] * (3 - (job.sampling.seed >> 32))

    feature = plugged(ranking={})
    partition = BenchPartition()
    turn = KeptTurn("r0", "hi", f"write to {EMAIL.value}", ASKED_AT - 1)
    partition.put(Table.CONVERSATIONS, Conversation(ASKED_AT - 1, (turn,)), "ann", "default")
    how: dict[str, Any] = {"models": [model(says=says)], "best_of": 3, "seed": 1, "prompt": f"why {EMAIL.value}?"}
    told = await answered(feature, BestOf(feature), *guard(pii="mask"), partition=partition, **how)
    assert told.plan.chosen == 2
    own: Any = feature.on["ranking"].feature
    ((question, candidates, earlier),) = own.seen
    assert [one.text for one in candidates] == ["wordwordword", "wordword", "word"]
    assert (EMAIL.value in question + earlier[0], len(placeholders_in(question + earlier[0]))) == (False, 2)
    assert own.vectors == []


@pytest.mark.parametrize("which", [-1, 2, "first"])
async def test_one_that_chooses_nothing_ends_that_request(which: Any) -> None:
    feature = plugged(ranking={"which": which})
    told = await answered(BestOf(feature), best_of=2, seed=1)
    assert told.end.error is not None
    assert (told.code, told.end.error.message) == ("engine_error", "the plug-in ranking chose none of 2 answers")


async def test_it_gets_vectors_of_the_workers_embedder_on_its_own_thread() -> None:
    embedder = load_embedder(SETTINGS.embedder)
    feature = PluggedIn(Policy(plugins={"ranking": {}}), embedder)
    feature.on["ranking"].room._bound_s = 300.0
    await answered(BestOf(feature), best_of=2, seed=1)
    own: Any = feature.on["ranking"].feature
    assert np.linalg.norm(own.vectors, axis=1) == pytest.approx([1.0])
    embedder.close()


async def test_the_system_message_of_a_request_stays() -> None:
    said = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "why?"}]
    _, prompt = await _prompted(plugged(documents=TEXTS), prompt=None, messages=said)
    assert "Be brief.\n\nBecause of the moon." in prompt


async def test_the_next_owner_asks_nobody_again() -> None:
    feature = plugged(documents=TEXTS, loud={})

    async def run(partition: BenchPartition, before: Sequence[TokenEvent]) -> Told:
        return await answered(feature, partition=partition, before=before)

    whole = await same_at_every_cut(run)
    assert len(whole.plans) == 1
    later = plugged(documents={"texts": {"why": "Because of the sun."}}, loud={})
    resumed, prompt = await _prompted(later, before=whole.events[:1])
    assert "sun" not in prompt
    assert resumed.text == whole.text


async def test_a_plug_in_that_the_former_owner_did_not_have_has_no_part() -> None:
    whole = await answered(plugged(documents=TEXTS))
    _, prompt = await _prompted(plugged(documents=TEXTS, loud={}), before=whole.events[:2])
    assert "why?" in prompt


async def test_without_a_plug_in_of_the_plan_there_is_a_clear_end_and_no_other_answer() -> None:
    whole = await answered(plugged(documents=TEXTS))
    begun = await answered(plugged(), before=whole.events[:3])
    assert (begun.end.finish_reason, begun.text) == ("partial", "".join(one.text or "" for one in whole.events[1:3]))
    new = await answered(plugged(), before=whole.events[:1])
    assert new.end.error is not None
    assert "the plug-in documents, which this worker does not have" in new.end.error.message


@pytest.mark.parametrize(
    ("how", "code", "words"),
    [
        ("raises", "engine_error", "the plug-in wrong failed on this request (KeyError)"),
        ("exits", "engine_error", "the plug-in wrong failed on this request (SystemExit)"),
        ("refuses", "invalid_request", "no questions"),
        ("large", "engine_error", "decided 70002 bytes"),
        ("object", "engine_error", "what no JSON holds"),
        ("text", "engine_error", "gave no Prompt"),
    ],
)
async def test_what_it_raises_ends_that_request_alone(how: str, code: str, words: str) -> None:
    feature = plugged(wrong={"how": how})
    told = await answered(feature)
    assert told.end.error is not None
    assert (told.code, words in told.end.error.message) == (code, True)
    assert "why" not in told.end.error.message
    assert len(told.partition.commits) == 1


async def test_one_that_blocks_has_a_bound_and_holds_nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    feature = plugged(wrong={"how": "blocks"})
    monkeypatch.setattr(feature.on["wrong"].room, "_bound_s", 0.05)
    own: Any = feature.on["wrong"].feature
    told = await answered(feature)
    assert not own.has_ended, "the event loop was held"
    own.released.set()
    assert told.end.error is not None
    assert "did not answer within" in told.end.error.message


async def test_it_sees_placeholders_and_learns_of_ends_and_erasures() -> None:
    feature = plugged(documents=TEXTS)
    told = await answered(feature, *guard(pii="mask"), prompt=f"why write to {EMAIL.value}?")
    feature.forget("ann")
    own: Any = feature.on["documents"].feature
    while not (own.told and own.forgotten):
        await asyncio.sleep(0.001)
    ((asked, decision, answer),) = own.told
    assert EMAIL.value not in asked.prompt
    assert placeholders_in(own.asked[0].prompt)
    assert decision == (told.plan.plugins or {})["documents"]
    assert (answer.text, own.forgotten) == (told.text, ["ann"])


def test_a_raw_prompt_has_no_plug_in() -> None:
    told, prompt = asyncio.run(_prompted(plugged(loud={}), raw=True))
    assert (told.plan.plugins, prompt) == (None, "why?")


@pytest.mark.parametrize(
    ("tables", "words"),
    [
        ({"unready": {}}, "does not start: OSError: no disk; check its settings"),
        ({"gone": {}}, "example 1.0 (parley.features: nowhere:X) cannot be loaded: ModuleNotFoundError"),
        ({"documents": {}}, "does not start: KeyError: 'texts'; check its settings"),
        (
            {"other": {}},
            "no installed package has 'other' (parley.features); there are: best_answer, documents, door, gone,",
        ),
    ],
)
def test_one_that_cannot_be_loaded_is_told_in_one_line(tables: dict[str, dict[str, Any]], words: str) -> None:
    with pytest.raises(PolicyError) as caught:
        plugged(**tables)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_name_that_stands_twice_is_refused(tmp_path: Path) -> None:
    put_package(tmp_path, "", {Kind.STORES: {"milvus": "second:Store"}}, "second")
    with pytest.raises(PluginError, match=r"two plug-ins have one name: 'milvus' of parley .* and 'milvus' of second"):
        check_names()


async def test_a_policy_brings_takes_and_keeps_them() -> None:
    feature = plugged(documents=TEXTS)
    kept = feature.on["documents"]
    assert await feature.prepare(Policy(plugins={"documents": TEXTS})) is None
    change = await feature.prepare(Policy(plugins={"documents": TEXTS, "loud": {}}))
    assert change is not None
    assert list(feature.on) == ["documents", "best_answer"]
    change.apply()
    assert (feature.on["documents"], list(feature.on)) == (kept, ["documents", "loud", "best_answer"])
    with pytest.raises(PolicyError):
        await feature.prepare(Policy(plugins={"gone": {}}))
    last = await feature.prepare(Policy())
    assert last is not None
    last.apply()
    assert not feature.is_on
    await feature.close()


async def test_its_figures_are_metrics() -> None:
    feature = plugged(documents=TEXTS)
    await answered(feature)
    samples = {
        (one.name, *one.labels.values()): one.value for family in plugin_families(feature) for one in family.samples
    }
    assert samples["parley:plugin_figure", "documents", "texts"] == 1
    assert samples["parley:plugin_calls_total", "documents", "done"] >= 2


def test_a_room_begins_no_thread_before_its_first_call() -> None:
    assert plugged(loud={}).on["loud"].room._loop is None
    assert PluginRoom.threaded
