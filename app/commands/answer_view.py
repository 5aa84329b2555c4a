"""Print one answer to the terminal as it is generated."""

from __future__ import annotations

import click
import msgspec

from app.commands.terminal import note
from app.printable import printable, printable_json
from app.reader import Update
from app.wire.event import ATTEMPT, PLAN, EventType, Notice
from models.generation import FinishReason


def show(update: Update) -> None:
    """Print what the update adds, including the end."""
    event = update.event
    if event.notice is not None:
        if not _is_for_programs(event.notice):
            note(f"[{printable(event.notice.message)}]")
        return
    if update.cut is not None:
        note("\n[part of the answer was retracted; it is now]")
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
    """Print the event as it is in `tokens`."""
    click.echo(printable_json(msgspec.json.encode(update.event)))


def _is_for_programs(notice: Notice) -> bool:
    """Plans are, and so is the first attempt at a request that was in Kafka before its worker."""
    return notice.code == PLAN or (notice.code == ATTEMPT and (notice.details or {}).get("attempt", 0) <= 1)


def _write(text: str) -> None:
    click.echo(printable(text), nl=False)
