"""Two answers that arrive at once are readable on one terminal."""

from __future__ import annotations

import pytest

from app.demo.dialogues import SharedScreen
from app.demo.script import Speaker


@pytest.fixture
def screen() -> SharedScreen:
    return SharedScreen([Speaker("nina", "cyan", ()), Speaker("omar", "magenta", ())])


def test_tokens_are_printed_as_they_arrive(screen: SharedScreen, capsys: pytest.CaptureFixture[str]) -> None:
    screen.show_prompt("nina", "Hi")
    screen.begin_answer("nina")
    screen.add("nina", "Hel")
    assert capsys.readouterr().out == "nina > Hi\nnina < Hel"
    screen.add("nina", "lo")
    screen.end_answer("nina", "2 tokens")
    assert capsys.readouterr().out == "lo   [2 tokens]\n"


def test_an_answer_is_not_interrupted_and_the_other_follows_with_nothing_lost(
    screen: SharedScreen, capsys: pytest.CaptureFixture[str]
) -> None:
    screen.begin_answer("nina")
    screen.show_prompt("omar", "Well?")
    screen.begin_answer("omar")
    screen.add("nina", "Hello")
    screen.add("omar", "Ye")
    assert capsys.readouterr().out == "nina < Hello"
    screen.end_answer("nina", "1 token")
    assert capsys.readouterr().out == "   [1 token]\nomar > Well?\nomar < Ye"
    screen.show_prompt("nina", "And?")
    screen.add("omar", "s")
    screen.end_answer("omar", "2 tokens")
    assert capsys.readouterr().out == "s   [2 tokens]\nnina > And?\n"


def test_what_was_retracted_is_replaced(screen: SharedScreen, capsys: pytest.CaptureFixture[str]) -> None:
    screen.begin_answer("nina")
    screen.add("nina", "Helas")
    screen.replace("nina", "Hel")
    screen.add("nina", "lo")
    screen.close()
    assert capsys.readouterr().out.splitlines()[1:] == ["nina < Hello"]


def test_what_would_steer_the_terminal_is_not_written(screen: SharedScreen, capsys: pytest.CaptureFixture[str]) -> None:
    screen.add("nina", "\x1b[2J")
    assert "\x1b" not in capsys.readouterr().out
