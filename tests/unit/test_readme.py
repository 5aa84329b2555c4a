"""What the README says of settings and error codes is what the code has."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from app.commands.settings import settings_table
from app.wire.codes import MEANING

README = (Path(__file__).parents[2] / "README.md").read_text()


def test_the_settings_table_is_that_of_the_settings_class() -> None:
    assert settings_table() in README, "put the output of `parley settings --markdown` into the README"


def test_every_error_code_has_its_row() -> None:
    for code, meaning in MEANING.items():
        assert f"| `{code}` | {meaning} |" in README


def test_the_reader_rule_of_the_readme_is_short_and_valid_python() -> None:
    (code,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    ast.parse(code)
    assert len([line for line in code.splitlines() if line]) <= 15


def test_every_link_of_the_readme_leads_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        assert (Path(__file__).parents[2] / target).exists(), target
