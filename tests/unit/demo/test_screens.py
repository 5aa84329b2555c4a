from __future__ import annotations

import io

import pytest
from rich.console import Console

from app.demo.screen import LineScreen, LiveScreen

COLOURS = {"nina": "cyan", "omar": "magenta"}


def test_lines_are_whole_prompts_and_answers(capsys: pytest.CaptureFixture[str]) -> None:
    with LineScreen(COLOURS) as screen:
        screen.asked("nina", "Hi")
        screen.add("nina", "Hel")
        screen.add("nina", "lo")
        screen.add("omar", "Yes")
        screen.ended("nina", "Hello", "2 tokens")
    assert capsys.readouterr().out.splitlines() == [
        "nina > Hi",
        "nina < Hello   [2 tokens]",
    ]


def test_what_would_steer_the_terminal_is_not_written(capsys: pytest.CaptureFixture[str]) -> None:
    with LineScreen(COLOURS) as screen:
        screen.ended("nina", "\x1b[2J", "1 token")
    assert "\x1b" not in capsys.readouterr().out


def test_side_by_side_shows_both_talks_and_replaces_what_was_taken_back() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=100, color_system=None)
    with LiveScreen(COLOURS, console) as screen:
        screen.asked("nina", "Hi")
        screen.asked("omar", "Well?")
        screen.add("nina", "Helas")
        screen.taken_back("nina", "Hel")
        screen.add("nina", "lo")
        screen.ended("nina", "Hello", "2 tokens")
        shown = Console(file=io.StringIO(), width=100)
        shown.print(screen._render())
    assert isinstance(shown.file, io.StringIO)
    text = shown.file.getvalue()
    assert "> Hi" in text
    assert "> Well?" in text
    assert "Hello" in text
    assert "Helas" not in text
