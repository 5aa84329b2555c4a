"""Completion in shells, as docs/commands.md has it switched on."""

from __future__ import annotations

import pytest
from click.shell_completion import ShellComplete

from app.commands import parley


@pytest.mark.parametrize(
    ("typed", "begun", "completed"),
    [
        ([], "ca", ["cancel"]),
        ([], "w", ["waits", "watch", "worker"]),
        (["tail"], "to", ["tokens", "tool-calls", "tool-results"]),
        (["tail", "tokens"], "--from", ["--from-beginning"]),
        (["policy"], "", ["check"]),
    ],
)
def test_commands_topics_and_options_are_completed(typed: list[str], begun: str, completed: list[str]) -> None:
    shell = ShellComplete(parley, {}, "parley", "_PARLEY_COMPLETE")
    assert [item.value for item in shell.get_completions(typed, begun)] == completed
