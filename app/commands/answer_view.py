"""One answer on the terminal, written as it comes."""

from __future__ import annotations

import click
import msgspec

from app.commands.terminal import note, printable
from app.reader import Update
from app.wire import EventType, FinishReason


def show(update: Update) -> None:
    """Write what the update adds, with its end."""
    event = update.event
    if event.notice is not None:
        note(f"[{printable(event.notice.message)}]")
        return
    if update.cut is not None:
        note("\n[the answer was taken back in part; it is]")
        _write(update.answer.text)
    else:
        if update.gap:
            note(f"[{update.gap} tokens are missing here]")
        _write(update.text)
    if event.is_end and update.answer.text:
        _write("\n")
    if event.type is EventType.DONE and event.finish_reason is not FinishReason.STOP:
        note(f"[{event.finish_reason}]")


def show_json(update: Update) -> None:
    """Write the event as it stands in `tokens`."""
    click.echo(msgspec.json.encode(update.event))


def _write(text: str) -> None:
    click.echo(printable(text), nl=False)
