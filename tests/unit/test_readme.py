"""The README and the reference pages agree with the code: settings, error codes, the reader rule, links."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from app.commands.settings import settings_table
from app.wire.error import MEANING

VECTORS: list[dict[str, Any]] = json.loads((Path(__file__).parent / "reader" / "vectors.json").read_text())
ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
READER = (ROOT / "app" / "reader" / "README.md").read_text()
PAGES = [
    ROOT / "README.md",
    *(
        page
        for room in ("app", "models", "deploy", "tests")
        for page in (ROOT / room).rglob("README.md")
        if "node_modules" not in page.parts  # other projects' pages, once their tests have run here
    ),
]


def test_the_settings_table_is_that_of_the_settings_class() -> None:
    page = (ROOT / "docs" / "settings.md").read_text()
    assert settings_table() in page, "put the output of `parley settings --markdown` into docs/settings.md"


def test_every_error_code_has_its_row() -> None:
    for code, meaning in MEANING.items():
        assert f"| `{code}` | {meaning} |" in README


def test_the_reader_rule_of_the_readme_is_short_and_valid_python() -> None:
    (code,) = re.findall(r"```python\n(.*?)```", READER, re.DOTALL)
    ast.parse(code)
    assert len([line for line in code.splitlines() if line]) <= 15


NEVER_SENT = "a lower index within an epoch is left out"


@pytest.mark.parametrize("vector", [one for one in VECTORS if one["name"] != NEVER_SENT], ids=lambda one: one["name"])
def test_the_reader_rule_of_the_readme_reads_the_shared_vectors(vector: dict[str, Any]) -> None:
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


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.parent.name)
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
        assert (page.parent / target).exists(), target
