"""The examples of docs/plugins.md: installed, switched on as the page says, and asked."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from parley_client.plugins import Kind, installed

from app.commands import parley
from app.features.guard.fair_order import Asker
from app.features.guard.judges.judges import Judges
from app.features.plugged import PluggedIn
from app.policy.file import Policy
from app.policy.guard_rules import GuardRules
from app.search.opening import open_vectors
from app.search.vector_store import Query
from app.settings import Settings
from app.wire.event import TokenEvent
from tables.erasures import Scope
from tests.simulation.milvus import SameVector
from tests.unit.answering.bench import BenchPartition, Told, answered, same_at_every_cut
from tests.unit.answering.word_engine import model, words_of
from tests.unit.plugins.examples import EXAMPLES, ROOT, built, examples

__all__ = ["built", "examples"]
_MOST_LINES = 100


def test_the_page_names_every_group_and_every_example() -> None:
    page = (ROOT / "docs" / "plugins.md").read_text()
    assert set(re.findall(r"`(parley\.\w+)`", page)) == set(Kind)
    files = [one for one in EXAMPLES.iterdir() if one.is_file()]
    assert all(f"(../deploy/examples/plugins/{one.name})" in page for one in files)
    assert all(len(one.read_text().splitlines()) <= _MOST_LINES for one in files)


@pytest.mark.usefixtures("examples")
def test_they_need_the_light_package_alone() -> None:
    before = {name for name in sys.modules if name.partition(".")[0] == "app"}
    said = CliRunner().invoke(parley, ["plugins"])
    assert (said.exit_code, said.output.count("house-plugins 1.0")) == (0, 3), said.output
    texts = [one.read_text() for one in EXAMPLES.glob("*.py")]
    assert not any(re.search(r"^(from|import) (app|models|tables|agents)\b", text, re.MULTILINE) for text in texts)
    assert before <= set(sys.modules)


@pytest.fixture
def handbook(examples: Path, tmp_path: Path) -> PluggedIn:
    del examples
    (tmp_path / "returns.md").write_text("Parcels can be returned within 30 days.")
    (tmp_path / "holidays.md").write_text("The office is closed in August.")
    return PluggedIn(Policy(plugins={"handbook": {"folder": str(tmp_path), "most": 1}}))


async def test_the_model_reads_the_pages_that_fit(handbook: PluggedIn, tmp_path: Path) -> None:
    one = model()
    asked: dict[str, Any] = {"prompt": "When can parcels be returned?"}
    told = await answered(handbook, models=[one], **asked)
    assert "within 30 days" in words_of(one).prompts[0]
    assert "August" not in words_of(one).prompts[0]
    (tmp_path / "returns.md").write_text("Parcels can be returned within 60 days.")
    later = PluggedIn(Policy(plugins={"handbook": {"folder": str(tmp_path), "most": 1}}))

    async def run(partition: BenchPartition, before: Sequence[TokenEvent]) -> Told:
        return await answered(later if before else handbook, partition=partition, before=before, **asked)

    assert (await same_at_every_cut(run)).text == told.text


async def test_the_stage_refuses_in_words_for_the_sender(handbook: PluggedIn) -> None:
    told = await answered(handbook, prompt="what about payroll?")
    assert told.end.error is not None
    assert told.end.error.message == "questions about payroll go to payroll@example.org"


@pytest.mark.usefixtures("examples")
async def test_the_judge_finds_rivals() -> None:
    rules = GuardRules(answer={"rival": "block"}, judges={"rivals": {"names": ["Acme", "Globex"]}})
    judges = Judges(rules)
    found = [await judges.categories_of([text], frozenset({"rival"}), Asker("ann", "r1")) for text in ("acme!", "we")]
    assert found == [{"rival"}, set()]
    await judges.close()


@pytest.mark.usefixtures("examples")
async def test_the_store_keeps_finds_and_erases(tmp_path: Path) -> None:
    settings = Settings(_env_file=None, store="sqlite", milvus_uri=str(tmp_path / "history.db"))
    store, other, same = open_vectors(settings), open_vectors(settings), SameVector()
    (vector,) = await same.embed(["x"])
    await store.open(same)
    await other.open(same)
    names = {"user_id": "ann", "conversation_id": "c", "role": "user", "tenant": "", "model_version": "m@1"}
    rows = [
        {"turn_id": f"ann/r{at}:user", "text": "x", "created_at": at, "asked_at": at, "embedding": vector, **names}
        for at in range(1, 6)
    ]
    await store.upsert(rows)
    await store.upsert(rows[:2])
    assert len(await other.search(Query(user_id="ann", text="x"), vector, same)) == 5
    assert len(await other.search(Query(user_id="ann", text="x", since=2, until=4), vector, same)) == 2
    await other.erase(Scope("ann", "other"), 9, 9)
    await other.erase(Scope("ann", "c"), 2, 9)
    await other.expire(4)
    assert sorted(one["turn_id"] for one in await store.fetch([row["turn_id"] for row in rows])) == [
        "ann/r4:user",
        "ann/r5:user",
    ]
    await store.close()
    await other.close()


@pytest.mark.usefixtures("examples")
def test_each_example_is_of_one_kind() -> None:
    found = {kind: [*installed(kind)] for kind in (Kind.FEATURES, Kind.JUDGES, Kind.STORES)}
    assert found == {Kind.FEATURES: ["handbook"], Kind.JUDGES: ["rivals"], Kind.STORES: ["sqlite"]}
