"""Terminal input: line editing, persistent history, prompts of several lines.

A line that ends with a backslash continues on the next line. Pasted text stays together if readline detects it. Lines
typed while an answer is running are kept for afterwards, except those that are about it.
"""

from __future__ import annotations

import os
import select
import sys
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from app.commands.terminal import note

_MOST_LINES = 1000


class Lines:
    """Prompts from standard input; in a terminal, input is accepted at any time and a history is kept."""

    def __init__(self) -> None:
        self.is_terminal = sys.stdin.isatty()
        self._ahead: deque[str] = deque()
        self._rest = b""

    def __iter__(self) -> Iterator[str]:
        if not self.is_terminal:
            yield from (line for line in map(str.strip, sys.stdin) if line)
            return
        with _input_history():
            while (prompt := self._next()) is not None:
                if prompt.strip():
                    yield prompt

    def read_ahead(self, obey: Callable[[str], bool]) -> None:
        """While an answer is running: keep typed lines, except those that `obey` carries out."""
        if not self.is_terminal or not select.select([sys.stdin], [], [], 0)[0]:
            return
        # A terminal returns one line per read.
        *lines, self._rest = (self._rest + os.read(sys.stdin.fileno(), 65536)).split(b"\n")
        for line in lines:
            text = line.decode(errors="replace").strip()
            if text and not obey(text):
                self._ahead.append(text)

    def _next(self) -> str | None:
        """None at the end of the input."""
        if self._ahead:
            line = self._ahead.popleft()
            note(f"> {line}")
            return line
        parts: list[str] = []
        while True:
            try:
                parts.append(input(". " if parts else "> "))
            except EOFError:
                note("")
                return None
            except KeyboardInterrupt:
                note("\n[Ctrl-D or /quit exits]")
                parts = []
                continue
            if not parts[-1].endswith("\\"):
                return "\n".join([*(part.removesuffix("\\") for part in parts[:-1]), parts[-1]])


@contextmanager
def _input_history() -> Iterator[None]:
    import readline  # line editing, for a person who types

    path = Path(os.environ.get("XDG_STATE_HOME") or "~/.local/state").expanduser() / "parley" / "history"
    readline.set_history_length(_MOST_LINES)
    if path.exists():
        try:
            readline.read_history_file(path)
        except OSError as error:
            note(f"[cannot read the input history: {error}]")
    try:
        yield
    finally:
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            readline.write_history_file(path)
            path.chmod(0o600)
        except OSError as error:
            note(f"[cannot save the input history: {error}]")
