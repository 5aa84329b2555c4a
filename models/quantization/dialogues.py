"""Dialogues for calibration and evaluation, from a file or from the demo's generator."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Messages = list[dict[str, str]]


@dataclass(frozen=True, slots=True)
class Example:
    """A prompt, and the right answer if it is known."""

    messages: Messages
    answer: str | None

    def whole(self) -> Messages:
        return [*self.messages, *([] if self.answer is None else [{"role": "assistant", "content": self.answer}])]


def of_file(path: Path) -> list[Example]:
    """JSON lines with `messages`; a final message of the assistant is the right answer.

    Raises `ValueError` with one line that names the line of the file.
    """
    found = []
    for number, line in enumerate(path.read_text().splitlines(), start=1):
        if not line.strip():
            continue
        try:
            messages = [{"role": str(m["role"]), "content": str(m["content"])} for m in json.loads(line)["messages"]]
        except (ValueError, KeyError, TypeError):
            messages = []
        answer = messages.pop()["content"] if messages and messages[-1]["role"] == "assistant" else None
        if not messages:
            raise ValueError(f"{path}, line {number}: not an object with messages of role and content")
        found.append(Example(messages, answer))
    if not found:
        raise ValueError(f"{path}: it has no dialogues")
    return found


def of_the_shop(count: int, *, held_out: bool) -> list[Example]:
    """Dialogues of the demo; the held-out ones share no name and no item with the others."""
    from models.demo.dialogues import Split, dialogues  # noqa: PLC0415  not where a file is given

    split = Split.HELD_OUT if held_out else Split.TRAINING
    return list(itertools.islice(_last_turns(dialogues(7, split)), count))


def _last_turns(dialogues: Iterator[Any]) -> Iterator[Example]:
    for dialogue in dialogues:
        last = len(dialogue.turns) - 1
        yield Example(dialogue.messages(last), dialogue.turns[last].answer)
