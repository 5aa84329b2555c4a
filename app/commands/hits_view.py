"""Search hits as a table with highlighted words.

`rank` combines meaning and words; `near` is the cosine alone, so it need not decrease from row to row.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime

from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from app.process.printable import printable
from app.search.vector_store import Hit

_LONGEST = 240
_TABLE_WIDTH = 76
"""A narrower terminal has no room for the texts beside the other columns."""
_SHORTEST_WORD = 3
_WHO = {"user": ("user", "cyan"), "assistant": ("assistant", "magenta")}


def show(hits: Sequence[Hit], query: str, console: Console) -> None:
    words = _words(query)
    if console.width < _TABLE_WIDTH:
        for rank, hit in enumerate(hits, start=1):
            console.print(Text(f"{rank}  {when(hit.created_at)}  ", style="dim").append(*_WHO[hit.role]))
            console.print(Padding(_told(hit, words), (0, 0, 1, 2)))
        return
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, expand=False)
    table.add_column("rank", justify="right", no_wrap=True)
    table.add_column("near", justify="right", no_wrap=True)
    table.add_column("when", no_wrap=True)
    table.add_column("who", no_wrap=True)
    table.add_column("text", overflow="fold", min_width=24)
    table.add_column("conversation", style="dim", overflow="ellipsis", no_wrap=True, min_width=12)
    for rank, hit in enumerate(hits, start=1):
        table.add_row(
            str(rank),
            f"{hit.similarity:.2f}",
            when(hit.created_at),
            Text(*_WHO[hit.role]),
            _told(hit, words),
            Text(printable(hit.conversation_id)),
        )
    console.print(table)


def _told(hit: Hit, words: re.Pattern[str] | None) -> Text:
    """With where the version stands that one finds in its place."""
    later = hit.replaced_by
    mark = "" if later is None else f" (replaced by a later version in {printable(later.conversation_id)})"
    return passage(hit.text, words).append(mark, "dim")


def passage(text: str, words: re.Pattern[str] | None) -> Text:
    """The part of the text around the first match that fits."""
    text = " ".join(printable(text).split())
    match = words.search(text) if words else None
    start = 0
    if match and match.end() > _LONGEST:
        start = text.rfind(" ", 0, max(0, match.start() - _LONGEST // 3)) + 1
    shown = Text(("… " if start else "") + text[start : start + _LONGEST])
    if len(text) > start + _LONGEST:
        shown.append(" …")
    if words:
        shown.highlight_regex(words, "bold yellow")
    return shown


def when(created_at: int) -> str:
    try:
        return datetime.fromtimestamp(created_at / 1000, UTC).astimezone().strftime("%Y-%m-%d %H:%M")
    except (ValueError, OverflowError, OSError):
        return "?"  # a producer may set any timestamp


def _words(query: str) -> re.Pattern[str] | None:
    words = {word for word in re.findall(r"\w+", query) if len(word) >= _SHORTEST_WORD or word.isdigit()}
    if not words:
        return None
    return re.compile(r"\b(" + "|".join(sorted(map(re.escape, words), key=len, reverse=True)) + r")", re.IGNORECASE)
