"""What the commands print before they reach a broker."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner
from rich.table import Table

from app.commands import parley
from app.commands.terminal import print_table
from app.process.printable import printable


@pytest.fixture(autouse=True)
def _away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the developer's settings, and no broker."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PARLEY_BROKER", "kafka://127.0.0.1:1")


def test_wrong_setting_is_one_line_and_exit_code_2(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PARLEY_PARTITIONS", "many")
    result = CliRunner().invoke(parley, ["chat", "--user", "ann", "p"])
    assert result.exit_code == 2
    assert result.output.count("\n") == 1
    assert "PARLEY_PARTITIONS=many" in result.output


def test_unknown_setting_is_told_in_one_line_and_the_command_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PARLEY_PARTITION", "8")
    result = CliRunner().invoke(parley, ["tail", "tokens"])
    assert result.exit_code == 1
    lines = result.output.splitlines()
    ignored = "PARLEY_PARTITION is not a setting of Parley and is ignored"
    assert lines[0] == f"warning: {ignored}; did you mean PARLEY_PARTITIONS?"
    assert lines[1].startswith("Error: no Kafka answers at 127.0.0.1:1: start one with")
    assert len(lines) == 2


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("two\n\tlines", "two\n\tlines"),
        ("Grüße 👋 日本", "Grüße 👋 日本"),
        ("\x1b[31mred\x07\r", "�[31mred��"),
        ("\u202eturned\u200b", "�turned�"),
    ],
)
def test_only_what_can_be_seen_is_printed(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_a_narrow_terminal_gets_all_columns_of_a_table(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    names = ["tenant", "model", "route", "requests", "prompt tokens", "answer tokens", "cost"]
    table = Table(*names, box=None)
    table.add_row("acme", "demo@896f77ab", "a short route", "1234", "99999", "4711", "0.0123")
    print_table(table)
    printed = capsys.readouterr().out
    assert max(map(len, printed.splitlines())) > 40
    for cell in ("tenant", "requests", "acme", "demo@896f77ab", "route", "1234", "99999", "4711", "0.0123"):
        assert cell in printed
