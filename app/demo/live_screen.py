"""Both chats side by side, redrawn as tokens arrive."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from rich.columns import Columns
from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.text import Text

from app.printable import printable


class LiveScreen:
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
