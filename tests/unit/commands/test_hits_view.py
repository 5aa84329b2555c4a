from __future__ import annotations

import io

import msgspec
from rich.console import Console

from app.commands.hits_view import _words, passage, show, when
from app.search.rows import TurnSide
from app.search.vector_store import Hit, Version


def hit(text: str, conversation: str = "default") -> Hit:
    return Hit(
        request_id="r1",
        user_id="ann",
        conversation_id=conversation,
        role=TurnSide.USER,
        text=text,
        created_at=1_700_000_000_000,
        model_version="demo",
        tenant="",
        score=0.03,
        similarity=0.616,
    )


def printed(*hits: Hit, query: str = "package", width: int = 100) -> str:
    out = io.StringIO()
    show(hits, query, Console(file=out, width=width))
    return out.getvalue()


def test_hit_is_shown_with_its_nearness_side_and_text() -> None:
    line = printed(hit("My package never arrived")).splitlines()[3]
    assert line.split()[:2] == ["1", "0.62"]
    assert "user" in line
    assert "My package never arrived" in line


def test_a_narrow_terminal_shows_the_whole_text_below_its_time() -> None:
    lines = printed(hit("My package never arrived, and nobody told me why"), width=40).splitlines()
    assert lines[0].startswith("1  ")
    assert lines[0].endswith("user")
    assert " ".join(line.strip() for line in lines[1:]).strip() == "My package never arrived, and nobody told me why"
    assert max(map(len, lines)) <= 40


def test_a_hit_that_a_later_version_replaces_names_where_that_stands() -> None:
    old = msgspec.structs.replace(
        hit("My package never arrived"), replaced_by=Version(request_id="r2", conversation_id="default~0123abcd")
    )
    told = "My package never arrived (replaced by a later version in default~0123abcd)"
    assert " ".join(printed(old, width=160).split()).count(told) == 1
    assert " ".join(printed(old, width=60).split()).count(told) == 1
    assert "replaced" not in printed(hit("My package never arrived"))


def test_words_of_the_query_are_marked_whatever_their_case() -> None:
    shown = passage("A Package, and packages", _words("the package?"))
    assert [shown.plain[span.start : span.end] for span in shown.spans] == ["Package", "package"]


def test_long_text_is_shown_around_the_first_match() -> None:
    shown = passage("filler " * 200 + "needle in the hay" + " filler" * 200, _words("needle")).plain
    assert "needle in the hay" in shown
    assert shown.startswith("… ")
    assert shown.endswith(" …")
    assert len(shown) < 300


def test_text_steers_neither_the_terminal_nor_the_table() -> None:
    out = printed(hit("\x1b[31mred [bold]not bold[/bold]", conversation="[red]c\x07"))
    assert "\x1b" not in out
    assert "\x07" not in out
    assert "[bold]not bold[/bold]" in out


def test_impossible_time_is_shown_as_unknown() -> None:
    assert when(2**62) == "?"


def test_narrow_terminal_still_shows_the_text() -> None:
    assert "package" in printed(hit("package"), width=60)
