"""The kit for plug-ins: the examples pass it, and a fault that is planted in one of each kind is named."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from parley_client.plugins import Kind, PluginError

from tests.plugin_packages import on_the_path, put_package
from tests.simulation.plugged import check, report
from tests.simulation.promises import (
    ADMITTED,
    AT_A_TIME,
    CLEAN,
    CONTAINED,
    ERASED,
    FOUND,
    GONE,
    IN_TIME,
    PURE,
    READABLE,
    STARTS,
)
from tests.unit.plugins.examples import built, examples

__all__ = ["built", "examples"]

SOURCE = """
import asyncio
import itertools
import time
from parley_client.plugins import Engine, Found, NotReadable, Prompt, RecordFormat, Store, ToolFormat, Feature
from parley_client.plugins import RateLimited

_times = itertools.count()


class Good(Feature):
    def __init__(self, settings):
        self.texts = {}

    async def decide(self, asked):
        self.texts.setdefault(asked.user_id, []).append(asked.request_id)
        return {"asked": len(self.texts[asked.user_id])}

    def rewrite(self, prompt, decision):
        return Prompt(prompt.prompt, f"It is number {decision['asked']} of theirs.")

    def forget(self, user_id):
        self.texts.pop(user_id, None)


class Impure(Good):
    def rewrite(self, prompt, decision):
        return Prompt(prompt.prompt, f"It is {next(_times)}.")


class Unsorted(Good):
    def rewrite(self, prompt, decision):
        return Prompt(prompt.prompt, " ".join({f"rule {at}" for at in range(50)}))


class Librarian(Good):
    # What it has read is in its process alone.

    pages = {}

    async def decide(self, asked):
        self.pages[asked.request_id] = f"About {asked.prompt[:20]}"
        return {"page": asked.request_id}

    def rewrite(self, prompt, decision):
        return Prompt(prompt.prompt, self.pages.get(decision["page"], "Nothing is known."))


class Scribbler(Good):
    def rewrite(self, prompt, decision):
        return Prompt(prompt.prompt, "again" * (decision.setdefault("told", decision["asked"]) < 0))


class Gossip(Good):
    last = ""

    async def decide(self, asked):
        before, Gossip.last = Gossip.last, asked.prompt
        return before

    def rewrite(self, prompt, decision):
        return Prompt(prompt.prompt, f"Somebody else said: {decision}")


class Fragile(Good):
    async def decide(self, asked):
        return {"asked": len(asked.prompt.split()[1])}


class Stuck(Good):
    async def decide(self, asked):
        await asyncio.Event().wait()


class Sleeper(Good):
    blocks = False

    def rewrite(self, prompt, decision):
        time.sleep(0.2 * ("4711" in prompt.prompt))
        return prompt


class Fickle(Good):
    def __init__(self, settings):
        super().__init__(settings)
        self.left = 8

    async def admit(self, sender):
        self.left -= 1
        if self.left < 0:
            raise RateLimited("too many")


class Blind(Good):
    async def choose(self, question, candidates, earlier):
        return 2


class Shelf(Store):
    shelves = {}

    def __init__(self, options):
        self.rows = self.shelves.setdefault(options.address, {})

    async def upsert(self, rows):
        self.rows.update((row["turn_id"], row) for row in rows)

    async def erase(self, user_id, conversation_id, until):
        for key, row in list(self.rows.items()):
            if row["user_id"] == user_id and conversation_id in {None, row["conversation_id"]}:
                if row["asked_at"] <= until:
                    del self.rows[key]

    async def expire(self, before):
        for key in [key for key, row in self.rows.items() if row["created_at"] < before]:
            del self.rows[key]

    async def search(self, search):
        rows = [row for row in self.rows.values() if search.takes(row)]
        found = [Found(row, sum(a * b for a, b in zip(row["embedding"], search.vector))) for row in rows]
        return sorted(found, key=lambda one: -one.similarity)[: search.limit]

    async def fetch(self, turn_ids):
        return [self.rows[key] for key in turn_ids if key in self.rows]


class Hoard(Shelf):
    async def erase(self, user_id, conversation_id, until):
        pass


class Forgetful(Shelf):
    # It deletes once what it is told to delete again, behind a late write.

    done = set()

    async def erase(self, *scope):
        if scope not in self.done:
            self.done.add(scope)
            await super().erase(*scope)


class Eternal(Shelf):
    async def expire(self, before):
        pass


class Jumbled(Shelf):
    async def search(self, search):
        return sorted(await super().search(search), key=lambda one: one.similarity)


class Brittle(Shelf):
    async def fetch(self, turn_ids):
        return [self.rows[key] for key in turn_ids]


class Sieve(Shelf):
    async def upsert(self, rows):
        await super().upsert([row for row in rows if not row["turn_id"].endswith("assistant")])


class Steady(Engine):
    version, context_length, continues = "steady@1", 1 << 20, True

    def __init__(self, settings):
        pass

    async def write(self, job):
        whole = f"You said {len(job.messages[-1]['content'])} characters, and {job.seed} is the seed."
        for one in whole[len(job.written):]:
            yield one


class Shuffling(Steady):
    async def write(self, job):
        whole = f"{hash(job.messages[-1]['content'])} characters, and {job.seed} is the seed."
        for one in whole[len(job.written):]:
            yield one


class Again(Steady):
    async def write(self, job):
        for one in "From the beginning.":
            yield one


class Lines(RecordFormat):
    def __init__(self, schema):
        pass

    def read(self, value):
        try:
            pairs = [line.partition("=") for line in value.decode().split("\\n")]
        except UnicodeDecodeError:
            raise NotReadable("no UTF-8") from None
        return {name: text for name, _, text in pairs}

    def write(self, fields):
        return "\\n".join(f"{name}={text}" for name, text in fields.items()).encode()


class Rash(Lines):
    def read(self, value):
        return dict(line.split("=") for line in value.decode().split("\\n"))


angled = ToolFormat("<call>", " ", ": ", "", " & ", "</call>", leads=True, names="bare")
blurred = ToolFormat("<call>", " ", "\\n", "", " & ", "</call>", True, "bare", "tagged", "-", " is ", " ")
"""
POINTS = {
    Kind.FEATURES: {
        name.lower(): f"faulty:{name}"
        for name in (
            *("Good", "Impure", "Unsorted", "Librarian", "Scribbler", "Gossip", "Fragile", "Stuck", "Sleeper"),
            *("Fickle", "Blind"),
        )
    },
    Kind.STORES: {
        name.lower(): f"faulty:{name}"
        for name in ("Shelf", "Hoard", "Forgetful", "Eternal", "Jumbled", "Brittle", "Sieve")
    },
    Kind.ENGINES: {"steady": "faulty:Steady", "again": "faulty:Again", "shuffling": "faulty:Shuffling"},
    Kind.TOOL_FORMATS: {"angled": "faulty:angled", "blurred": "faulty:blurred"},
    Kind.RECORD_FORMATS: {"lines": "faulty:Lines", "rash": "faulty:Rash"},
}


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine is no sign."""
    monkeypatch.setattr("tests.simulation.plugin_calls.BOUND_S", 60.0)
    monkeypatch.setattr("tests.simulation.store_probes._BOUND_S", 60.0)


@pytest.fixture
def faulty(tmp_path: Path) -> Iterator[None]:
    put_package(tmp_path, SOURCE, POINTS, "faulty")
    with on_the_path(tmp_path):
        yield


@pytest.mark.usefixtures("faulty")
@pytest.mark.parametrize("name", ["good", "shelf", "steady", "angled", "lines"])
def test_what_keeps_its_promises_passes(name: str) -> None:
    (checked,) = check(name, {}, seeds=9)
    assert checked.broken == ()
    assert checked.storms == (9 if checked.plugin.kind in {Kind.FEATURES, Kind.STORES} else 0)


def test_what_is_late_gets_no_storms(faulty: None, monkeypatch: pytest.MonkeyPatch) -> None:
    del faulty
    monkeypatch.setattr("tests.simulation.plugin_calls.BOUND_S", 0.1)
    (checked,) = check("stuck", {}, seeds=9)
    assert checked.storms == 0


@pytest.mark.usefixtures("faulty")
@pytest.mark.parametrize(
    ("name", "promise"),
    [
        ("impure", PURE),
        ("unsorted", PURE),
        ("librarian", PURE),
        ("scribbler", PURE),
        ("gossip", ERASED),
        ("fragile", CONTAINED),
        ("stuck", IN_TIME),
        ("sleeper", CLEAN),
        ("fickle", ADMITTED),
        ("blind", CONTAINED),
        ("hoard", ERASED),
        ("forgetful", ERASED),
        ("eternal", GONE),
        ("jumbled", FOUND),
        ("brittle", CONTAINED),
        ("sieve", AT_A_TIME),
        ("again", PURE),
        ("shuffling", PURE),
        ("blurred", READABLE),
        ("rash", READABLE),
    ],
)
def test_a_planted_fault_is_found_and_named(name: str, promise: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if promise == IN_TIME:
        monkeypatch.setattr("tests.simulation.plugin_calls.BOUND_S", 0.1)
    (checked,) = check(name, {}, seeds=9)
    assert promise in {one.promise for one in checked.broken}, checked.broken


@pytest.mark.usefixtures("faulty")
def test_an_error_is_told_with_the_line_of_the_plugin(caplog: pytest.LogCaptureFixture) -> None:
    check("brittle", {}, seeds=0)
    assert "KeyError in faulty.py:" in caplog.text


@pytest.mark.parametrize("fault", ["impure", "gossip"])
@pytest.mark.usefixtures("faulty")
def test_the_storms_find_it_without_the_probes(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.simulation.plugged.probe", lambda *_: [])
    (checked,) = check(fault, {}, seeds=24)
    assert {"impure": PURE, "gossip": ERASED}[fault] in {one.promise for one in checked.broken}, checked.broken


@pytest.mark.parametrize(
    ("name", "settings"), [("handbook", {"most": 2}), ("rivals", {"names": ["question 3"]}), ("sqlite", {})]
)
@pytest.mark.usefixtures("examples")
def test_the_examples_of_the_page_pass(name: str, settings: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "orders.md").write_text("Each question about an order has a number.")
    if name == "handbook":
        settings = {**settings, "folder": str(tmp_path)}
    (checked,) = check(name, settings, seeds=9)
    assert checked.broken == ()


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("best_answer", {}),
        ("homes", {"here": {"region": "eu"}, "homes": {"acme": {"region": "us"}}}),
        ("user_limit", {"limits": {"*": 3}}),
    ],
)
def test_parleys_own_features_pass(name: str, settings: dict[str, Any]) -> None:
    (checked,) = check(name, settings, seeds=8)
    assert checked.broken == ()


@pytest.mark.usefixtures("faulty")
def test_the_command_names_the_promise(capsys: pytest.CaptureFixture[str]) -> None:
    assert report("again", "{}", 0, 0) == 1
    assert f"{PURE}: behind piece 1 it goes on with other words" in capsys.readouterr().out
    assert report("nobody", "{}", 0, 0) == 2
    with pytest.raises(PluginError, match="no installed package has a plug-in 'torch'"):
        check("torch", {})
    assert STARTS
