"""Dialogues for calibration and evaluation, from a file: one JSON object with `messages` a line."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CALIBRATION = Path(__file__).with_name("calibration.jsonl")
"""Dialogues of the demo's shop, as `HELD_OUT`."""
HELD_OUT = Path(__file__).with_name("held_out.jsonl")
Messages = list[dict[str, Any]]


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
            messages = [_message(one) for one in json.loads(line)["messages"]]
        except (ValueError, KeyError, TypeError, AttributeError):
            messages = []
        answer = messages.pop()["content"] if messages and messages[-1]["role"] == "assistant" else None
        if not messages:
            raise ValueError(f"{path}, line {number}: not an object with messages of role and content")
        found.append(Example(messages, answer))
    if not found:
        raise ValueError(f"{path}: it has no dialogues")
    return found


def _message(given: Any) -> dict[str, Any]:
    calls = {"tool_calls": given["tool_calls"]} if given.get("tool_calls") else {}
    return {"role": str(given["role"]), "content": str(given["content"]), **calls}
