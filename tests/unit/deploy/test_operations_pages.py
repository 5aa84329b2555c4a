"""The pages of docs/operations can be executed: each has its procedure, and its shell is valid."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.operations.page import FOLDER, blocks, pages, script
from tests.operations.procedures import PROCEDURES


def test_each_page_has_a_procedure_and_a_row() -> None:
    assert pages() == sorted(PROCEDURES)
    table = (FOLDER / "README.md").read_text()
    assert set(re.findall(r"\]\((\w+)\.md\)", table)) == set(PROCEDURES)


@pytest.mark.parametrize("name", sorted(PROCEDURES))
def test_the_shell_of_a_page_is_valid_and_waits_for_its_users(name: str) -> None:
    program = script(name)
    ran = subprocess.run(["bash", "-n"], input=program, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert blocks(FOLDER / f"{name}.md")
    first = blocks(FOLDER / f"{name}.md")[0]
    assert program.index("-e go") < program.index(first)


def test_every_fence_of_a_page_is_executed(tmp_path: Path) -> None:
    """A block in another language would be a step that nobody has tried."""
    for name in pages():
        fences = re.findall(r"^```(\w*)$", (FOLDER / f"{name}.md").read_text(), re.MULTILINE)
        assert set(filter(None, fences)) == {"sh"}, name
    page = tmp_path / "page.md"
    page.write_text("text\n\n```sh\none\n```\n\n```python\nno\n```\n\n```sh\ntwo\n```\n")
    assert blocks(page) == ["one\n", "two\n"]
