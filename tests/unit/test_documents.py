"""The documents agree with the code and with each other: settings, errors, topics, the reader rule, paths, links."""

from __future__ import annotations

import ast
import json
import re
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import models
from app.commands.settings import settings_table
from app.delivery.commits.changelog import changelog_topic
from app.gateway.edge.errors import STATUS
from app.gateway.openai.chat_choice import REASONS as CHAT_REASONS
from app.kafka.topics import topic_specs
from app.settings import Settings
from app.wire.error import MEANING, ErrorCode
from models.interface.generation import FinishReason
from tables.records import Table
from tests import house

ROOT = Path(__file__).parents[2]
VECTORS: list[dict[str, Any]] = json.loads((ROOT / "deploy" / "packages" / "conformance" / "vectors.json").read_text())
READER = (ROOT / "app" / "reader" / "README.md").read_text()
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text()
DAY_S = 86400


GENERATED = {"docs/settings.md", "docs/chart.md", "docs/models.md"}
LONGEST_LINE = 180

BUDGETS = {
    # words of each page; a page that needs more says why in the commit that raises its budget
    "CHANGELOG.md": 416,
    "CONTRIBUTING.md": 2_779,
    "README.md": 1_450,
    "SECURITY.md": 160,
    "app/audit/README.md": 480,
    "app/gateway/README.md": 2_095,
    "app/gateway/openai/README.md": 1_520,
    "app/reader/README.md": 350,
    "app/tools/README.md": 600,
    "app/wire/README.md": 1_810,
    "deploy/connect/README.md": 670,
    "deploy/packages/README.md": 165,
    "deploy/packages/conformance/README.md": 250,
    "deploy/packages/npm/README.md": 684,
    "deploy/packages/python/README.md": 528,
    "deploy/packages/quantize/README.md": 80,
    "docs/README.md": 285,
    "docs/agents.md": 500,
    "docs/built-on.md": 775,
    "docs/chart.md": 1_210,
    "docs/commands.md": 800,
    "docs/concepts.md": 1_100,
    "docs/edge-first.md": 380,
    "docs/engines.md": 1_440,
    "docs/errors.md": 500,
    "docs/forks.md": 445,
    "docs/foreign-records.md": 1_600,
    "docs/guard.md": 1_040,
    "docs/models.md": 820,
    "docs/not-there.md": 800,
    "docs/operations.md": 2_062,
    "docs/operations/README.md": 590,
    "docs/operations/backups.md": 290,
    "docs/operations/brokers.md": 140,
    "docs/operations/disks.md": 320,
    "docs/operations/erasure.md": 330,
    "docs/operations/logins.md": 470,
    "docs/operations/milvus.md": 190,
    "docs/operations/partitions.md": 380,
    "docs/operations/secrets.md": 470,
    "docs/operations/topics.md": 150,
    "docs/operations/upgrades.md": 300,
    "docs/own-programs.md": 290,
    "docs/plugins.md": 642,
    "docs/policy.md": 2_035,
    "docs/programs.md": 345,
    "docs/request-path.md": 900,
    "docs/security.md": 600,
    "docs/settings.md": 1_830,
    "docs/sizing.md": 1_600,
    "docs/topics.md": 850,
    "docs/waits.md": 1_310,
    "docs/while-busy.md": 340,
    "models/README.md": 1_830,
    "models/demo/checkpoint/README.md": 250,
    "tests/benchmarks/README.md": 1_481,
    "tests/clients/README.md": 320,
    "tests/faults/README.md": 1_400,
    "tests/fixtures/old_store/README.md": 60,
    "tests/integration/gateway/README.md": 250,
    "tests/unit/MUTANTS.md": 210,
}


def pages() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, check=True, capture_output=True, text=True)
    return [ROOT / name for name in listed.stdout.splitlines() if (ROOT / name).is_file()]


def without_code(text: str) -> str:
    return re.sub(r"^ *```.*?^ *```", "", text, flags=re.DOTALL | re.MULTILINE)


def anchors(page: Path) -> set[str]:
    """Those that GitHub gives to the headings of a page."""
    headings = re.findall(r"^#+ +(.*)$", without_code(page.read_text()), re.MULTILINE)
    plain = (re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading) for heading in headings)
    return {re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-") for heading in plain}


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    for target, anchor in re.findall(r"\]\(([^)#\s]*)(?:#([^)\s]*))?\)", without_code(page.read_text())):
        if re.match(r"[a-z]+:", target):
            continue
        linked = page.parent / target if target else page
        assert linked.exists(), target
        if anchor:
            assert anchor in anchors(linked), f"{target}#{anchor}"


def test_every_page_is_reached_from_the_readme() -> None:
    reached, waiting = set(), [ROOT / "README.md"]
    while waiting:
        page = waiting.pop().resolve()
        if page not in reached and page.suffix == ".md" and page.exists():
            reached.add(page)
            waiting += [page.parent / target for target in re.findall(r"\]\(([^)#:\s]+)", page.read_text())]
    assert {page for page in pages() if page.is_relative_to(ROOT / "docs")} <= reached


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().split()) <= 1400


def test_every_page_has_a_budget_and_keeps_it() -> None:
    words = {str(page.relative_to(ROOT)): len(page.read_text().split()) for page in pages()}
    assert sorted(words.keys() ^ BUDGETS.keys()) == []
    assert {name: count for name, count in words.items() if count > BUDGETS[name]} == {}


def test_no_line_of_a_page_is_long() -> None:
    too_long = {
        str(page.relative_to(ROOT))
        for page in pages()
        if any(len(line) > LONGEST_LINE for line in page.read_text().splitlines())
    }
    assert sorted(too_long - GENERATED) == []


def test_nobody_is_told_to_install_the_package_of_another_project() -> None:
    """PyPI's `parley` is another one."""
    listed = subprocess.run(["git", "ls-files", "*.md", "*.py"], cwd=ROOT, check=True, capture_output=True, text=True)
    texts = {name: (ROOT / name).read_text() for name in listed.stdout.splitlines() if (ROOT / name).is_file()}
    wrong = re.compile(r"pip install [^\n]*(?<![-\w/])parley(?:\[|['\"\s]|$)")
    assert [name for name, text in texts.items() if name != "tests/unit/test_documents.py" and wrong.search(text)] == []


def test_the_settings_tables_are_those_of_the_settings() -> None:
    page = (ROOT / "docs" / "settings.md").read_text()
    before, tables, _ = page.partition(settings_table())
    assert tables, "put the output of `parley settings --markdown` into docs/settings.md"
    assert before.startswith("# Settings\n"), "the tables have replaced what stands before them"


def test_every_error_code_has_its_row() -> None:
    page = (ROOT / "docs" / "errors.md").read_text()
    for code, meaning in MEANING.items():
        assert f"| `{code}` | {meaning} |" in page


def test_every_finish_reason_is_in_each_list_of_them() -> None:
    reasons = {reason.value for reason in FinishReason}
    section = (ROOT / "docs" / "errors.md").read_text().split("## Ends of an answer")[1].split("\n## ")[0]
    assert {
        name for row in re.findall(r"^\| (`.*?) \|", section, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)
    } == {
        "finish_reason",
        *reasons,
    }
    (listed,) = re.findall(r"finish_reason = \d+;  // (.*)", (ROOT / "app/wire/parley.proto").read_text())
    assert set(listed.split(", ")) == reasons
    (words,) = re.findall(r"const ENDS.*?\{(.*?)\n\}", (ROOT / "app/gateway/page/src/words.ts").read_text(), re.DOTALL)
    assert set(re.findall(r"^  (\w+):", words, re.MULTILINE)) == reasons - {"stop", "tool_calls"}
    assert {reason.value for reason in CHAT_REASONS} == reasons


def test_the_page_and_the_gateway_know_each_error_code() -> None:
    page = (ROOT / "app/gateway/page/src/words.ts").read_text()
    (words,) = re.findall(r"const ERRORS.*?\{(.*?)\n\}", page, re.DOTALL)
    assert set(re.findall(r"^  (\w+):", words, re.MULTILINE)) == set(ErrorCode) == set(STATUS)


def test_contributing_names_each_place_that_treats_reasons_differently() -> None:
    (row,) = re.findall(r"^- \*\*a finish reason\*\*:(.*?)^- \*\*", CONTRIBUTING, re.MULTILINE | re.DOTALL)
    sources = [
        path for room in ("app", "models") for path in (ROOT / room).rglob("*.py") if "node_modules" not in path.parts
    ]
    lists = {path for path in sources if len(re.findall(r"FinishReason\.[A-Z_]+[,}:]", path.read_text())) > 1}
    makers = {ROOT / "app/answering/pipeline.py", ROOT / "app/features/tool_rounds.py"}
    assert [str(path.relative_to(ROOT)) for path in lists - makers if f"`{path.relative_to(ROOT)}`" not in row] == []


def test_every_topic_has_its_row() -> None:
    page, settings = (ROOT / "docs" / "topics.md").read_text(), Settings(_env_file=None)
    for spec in topic_specs(settings):
        (row,) = re.findall(rf"^\| `{spec.name}` \|(.*)\|$", page, re.MULTILINE)
        *_, cleanup, retention, timestamps, missing = (cell.strip() for cell in row.split("|"))
        assert (cleanup, timestamps) == (spec.config["cleanup.policy"], spec.config["message.timestamp.type"])
        assert retention.startswith(f"{spec.retention_s // DAY_S} days")
        assert missing == ("by a worker" if spec.by_worker else "refused")
    for table in Table:
        assert f"`{table.value}`" in page
        assert changelog_topic(settings, table) == f"parley-{table.value}-changelog"


def test_every_path_that_contributing_names_is_there() -> None:
    named = re.findall(r"`((?:app|agents|models|tables|tests|docs|deploy)(?:/[\w./-]*)?)`", CONTRIBUTING)
    assert len(named) > 50
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_python_of_the_readme_is_python() -> None:
    for code in re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL):
        ast.parse(code)


def test_the_reader_rule_is_short_and_valid_python() -> None:
    (code,) = re.findall(r"```python\n(.*?)```", READER, re.DOTALL)
    ast.parse(code)
    assert len([line for line in code.splitlines() if line]) <= 15


NEVER_SENT = "a lower index within an epoch is left out"


@pytest.mark.parametrize("vector", [one for one in VECTORS if one["name"] != NEVER_SENT], ids=lambda one: one["name"])
def test_the_reader_rule_reads_the_shared_vectors(vector: dict[str, Any]) -> None:
    """As far as it goes: it keeps parts, and leaves out what other records than workers' may be."""
    (code,) = re.findall(r"```python\n(.*?)```", READER, re.DOTALL)
    scope: dict[str, Any] = {"json": json}
    exec(code, scope)
    for partition, offset, event in vector["records"]:
        if event["type"] == "fence" or {"epoch", "request_id"} <= event.keys():
            scope["read"](SimpleNamespace(partition=partition, offset=offset, value=json.dumps(event)))
    texts = {"/".join(key): "".join(part.get("text", "") for part in parts) for key, parts in scope["answers"].items()}
    expected = {key: answer for key, answer in vector["expect"]["answers"].items() if not answer["missing"]}
    assert {key: texts[key] for key in expected} == {key: answer["text"] for key, answer in expected.items()}


def map_ranks() -> dict[str, int]:
    """The row of each folder and file in the map of CONTRIBUTING.md; 0 is the topmost."""
    section = CONTRIBUTING.partition("## The map")[2].partition("\n## ")[0]
    cells = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    return {name: rank for rank, cell in enumerate(cells) for name in re.findall(r"`([^`]+)`", cell)}


def sources() -> list[str]:
    listed = subprocess.run(
        ["git", "ls-files", "app/*.py", "agents/*.py", "models/*.py", "tables/*.py"],
        cwd=ROOT, check=True, capture_output=True, text=True,
    )  # fmt: skip
    return [name for name in listed.stdout.splitlines() if (ROOT / name).is_file()]


def file_of(module: str, files: frozenset[str]) -> str | None:
    """The file of a module, or of the one that has a name of it."""
    while module:
        path = module.replace(".", "/")
        for name in (f"{path}.py", f"{path}/__init__.py"):
            if name in files:
                return name
        module = module.rpartition(".")[0]
    return None


def row_of(file: str, ranks: dict[str, int]) -> str | None:
    return next((name for name in (file, *map(str, Path(file).parents)) if name in ranks), None)


def imported_by(file: str) -> list[str]:
    nodes = list(ast.walk(ast.parse((ROOT / file).read_text())))
    named = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    froms = [node for node in nodes if isinstance(node, ast.ImportFrom) and node.module]
    return named + [f"{node.module}.{alias.name}" for node in froms for alias in node.names]


def test_every_file_is_on_the_map_and_imports_nothing_above_it() -> None:
    ranks, files = map_ranks(), frozenset(sources())
    upwards, checked = [], 0
    for file in sorted(files - {"app/__init__.py"}):  # the entry point of `faust -A app`
        row = row_of(file, ranks)
        assert row is not None, f"{file} is not on the map of CONTRIBUTING.md"
        for module in imported_by(file):
            target = file_of(module, files)
            if target is None or target == "app/__init__.py" or (other := row_of(target, ranks)) is None:
                continue
            checked += 1
            if ranks[other] < ranks[row]:
                upwards.append(f"{file} imports {target}")
    assert checked > 1000
    assert upwards == []


def test_a_room_of_models_imports_lower_floors_alone() -> None:
    floors = re.findall(r"^- ([^:]+):", str(models.__doc__), re.MULTILINE)
    floor_of = {room: number for number, rooms in enumerate(floors) for room in rooms.split(", ")}
    rooms = {path.parent.name for path in (ROOT / "models").glob("*/__init__.py")}
    circling = {room for circle in house.circles() for room in circle}
    wrong = [
        f"{room} imports {other}"
        for room, imports in house.imports_of_rooms().items()
        for other in imports
        if floor_of[other] >= floor_of[room] and not {room, other} <= circling
    ]
    assert floor_of.keys() == rooms
    assert wrong == []


def test_the_glossary_names_what_the_code_has() -> None:
    defined = {
        node.name
        for file in sources()
        for node in ast.walk(ast.parse((ROOT / file).read_text()))
        if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef))
    }
    concepts = (ROOT / "docs" / "concepts.md").read_text()
    rows = [line for line in concepts.splitlines() if line.startswith("| ") and not line.startswith("| word |")]
    named = [part for row in rows for name in re.findall(r"`([^`]+)`", row.split("|")[3]) for part in name.split(".")]
    assert len(named) > 25
    assert sorted(set(named) - defined) == []
