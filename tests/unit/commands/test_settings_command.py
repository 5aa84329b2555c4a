"""`parley settings` prints what `.env` takes."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from app.commands import parley
from app.settings import load_settings


@pytest.fixture(autouse=True)
def _away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_what_is_printed_is_a_dotenv_file_of_the_same_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as given:
        given.setenv("PARLEY_SYSTEM_PROMPT", 'It\'s # 1 \\ "shop"')
        given.setenv("PARLEY_TOPIC_PREFIX", "a.")
        expected = load_settings()
        printed = CliRunner().invoke(parley, ["settings"]).output
    assert load_settings() != expected
    (tmp_path / ".env").write_text(printed)
    assert load_settings() == expected


@pytest.mark.parametrize("command", [["local", "status"], ["settings"], ["local", "down"]])
def test_an_unknown_setting_is_one_line_on_stderr(command: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PARLEY_TYPO", "1")
    ended = CliRunner().invoke(parley, command)
    assert ended.stderr == "warning: PARLEY_TYPO is not a setting of Parley and is ignored\n"
