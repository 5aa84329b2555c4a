"""Two concurrent answers on one terminal: side by side if it can be redrawn, else line by line."""

from __future__ import annotations

from types import TracebackType
from typing import Protocol, Self

import click
from rich.columns import Columns
from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.text import Text

from app.process.printable import printable


class Screen(Protocol):
    def asked(self, user: str, prompt: str) -> None: ...

    def add(self, user: str, text: str) -> None:
        """More of the answer has arrived."""

    def taken_back(self, user: str, answer: str) -> None:
        """Replace the answer: part of the text so far was retracted."""

    def ended(self, user: str, answer: str, stats: str) -> None: ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None: ...


class LineScreen:
    """Whole prompts and answers: parts of two answers would only interrupt each other."""

    def __init__(self, colours: dict[str, str]) -> None:
        self._colours = colours
        self._width = max(map(len, colours))

    def asked(self, user: str, prompt: str) -> None:
        self._line(user, f"> {prompt}", bold=True)

    def add(self, user: str, text: str) -> None:
        """The answer follows when it is whole."""

    def taken_back(self, user: str, answer: str) -> None:
        """As above."""

    def ended(self, user: str, answer: str, stats: str) -> None:
        self._line(user, f"< {answer}   [{stats}]")

    def _line(self, user: str, text: str, *, bold: bool = False) -> None:
        click.secho(f"{user:<{self._width}} {printable(text)}", fg=self._colours[user], bold=bold)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Nothing is open."""


class LiveScreen:
    """Both chats side by side, redrawn as tokens arrive."""

    def __init__(self, colours: dict[str, str], console: Console) -> None:
        self._colours = colours
        self._console = console
        self._talks: dict[str, list[Text]] = {user: [] for user in colours}
        self._answers: dict[str, Text] = {}
        self._live = Live(console=console, get_renderable=self._render, refresh_per_second=20)

    def asked(self, user: str, prompt: str) -> None:
        self._talks[user].append(Text(f"> {printable(prompt)}", style="bold"))
        self._answers[user] = Text(style=self._colours[user])
        self._talks[user].append(self._answers[user])

    def add(self, user: str, text: str) -> None:
        self._answers[user].append(printable(text))

    def taken_back(self, user: str, answer: str) -> None:
        self._answers[user].plain = printable(answer)

    def ended(self, user: str, answer: str, stats: str) -> None:
        self._answers[user].plain = printable(answer)
        self._answers[user].append(f"\n{stats}\n", style="dim not bold")

    def _render(self) -> Columns:
        width = max(30, self._console.width // len(self._talks) - 1)
        return Columns([
            Panel(Group(*talk), title=user, border_style=self._colours[user], width=width)
            for user, talk in self._talks.items()
        ])  # fmt: skip

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._live.stop()
