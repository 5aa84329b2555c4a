"""Refusals: a line in the log, dead letters, and what is committed in place of what cannot be."""

from __future__ import annotations

import logging
import re

from app.delivery.commits.commit import Commit
from app.delivery.record import Outgoing, Record
from app.process.log_limit import LogLimit
from app.process.printable import printable
from app.settings import Settings
from app.wire.dead_letters import MAX_DEAD_LETTER_BYTES, cause_of, dead_letter
from app.wire.error import ErrorCode, WireError
from models.interface.unexpected import type_and_line
from tables.records import Table

log = logging.getLogger(__name__)
refusals = logging.getLogger("parley.refusals")
refusals.addFilter(LogLimit())

_OF_ONE_RECORD = re.compile(r"`[^`]*`|'[^']*'|\"[^\"]*\"|[0-9]+")
"""What differs between messages of one cause."""


def report_refusal(record: Record, code: str, message: str) -> None:
    """Tell the operator of a record that gets no answer: where it is and what is wrong. One line for each cause in some
    seconds, because a producer with a mistake makes it in each record.
    """
    line = " ".join(printable(message).split())
    cause = f"{record.topic} {code} {_OF_ONE_RECORD.sub('', line)}"
    refusals.warning(
        "%s[%s]@%s is refused: %s: %s",
        record.topic,
        record.partition,
        record.offset,
        code,
        line,
        extra={"cause": cause},
    )


def quiet_letter_of(
    record: Record, error: WireError, settings: Settings, *, most_bytes: int = MAX_DEAD_LETTER_BYTES
) -> Outgoing:
    """The record as received with the cause of its rejection, cut to `most_bytes`."""
    topic = record.topic if record.is_foreign else settings.topic(record.topic)
    cause = cause_of(error, topic, record.partition, record.offset)
    letter = dead_letter(cause, record.key, record.value, record.headers, most_bytes=most_bytes)
    return Outgoing(settings.topic("dead-letters"), letter.key, letter.value, tuple(letter.headers))


def letter_of(
    record: Record, error: WireError, settings: Settings, *, most_bytes: int = MAX_DEAD_LETTER_BYTES
) -> Outgoing:
    """The dead letter of a refused record; logs a warning for the operator."""
    report_refusal(record, error.code, error.message)
    return quiet_letter_of(record, error, settings, most_bytes=most_bytes)


def commit_of_letter(record: Record, error: WireError, settings: Settings) -> Commit:
    """The commit of a record that leads to nothing but its dead letter."""
    return Commit(record, (), (letter_of(record, error, settings),))


def commit_of_unexpected(record: Record, error: Exception, settings: Settings) -> Commit:
    """The commit of a record that raises something unexpected and of which nothing else is known."""
    return commit_of_letter(record, error_of_unexpected(record, error), settings)


def error_of_unexpected(record: Record, error: Exception) -> WireError:
    """What to report of a record that raises something unexpected when it is read."""
    log.warning("%s[%s]@%s cannot be read: %s", record.topic, record.partition, record.offset, type_and_line(error))
    return WireError(ErrorCode.INVALID_REQUEST, f"the record cannot be read ({type(error).__name__})")


def commit_without_output(commit: Commit, reason: str, settings: Settings) -> Commit:
    """The commit with what was meant `instead` of an output that the broker refused, and with a dead letter of the
    record without its value.
    """
    if commit.record is None:
        return Commit(None)
    error = WireError(ErrorCode.INVALID_REQUEST, f"Kafka rejects a record that this one leads to: {reason}")
    ended = tuple(change for change in commit.changes if change.table is Table.ENDED)
    letter = quiet_letter_of(commit.record, error, settings, most_bytes=0)
    return Commit(commit.record, ended, (*commit.instead, letter), commit.audit)
