"""The one line of aiokafka that is told in other words."""

from __future__ import annotations

import logging

from aiokafka.consumer.group_coordinator import log
from aiokafka.errors import CoordinatorNotAvailableError, KafkaConnectionError

from app.internals import _FirstStart


def told(error: Exception) -> logging.LogRecord:
    record = log.makeRecord(log.name, logging.ERROR, "", 0, "Group Coordinator Request failed: %s", (error,), None)
    assert _FirstStart().filter(record)
    return record


def test_a_first_start_is_told_as_what_it_is() -> None:
    first = told(CoordinatorNotAvailableError())
    assert (first.levelno, first.levelname) == (logging.WARNING, "WARNING")
    assert "no group coordinator yet" in first.getMessage()


def test_other_errors_are_told_as_they_are() -> None:
    other = told(KafkaConnectionError("gone"))
    assert other.levelno == logging.ERROR
    assert other.getMessage() == "Group Coordinator Request failed: KafkaConnectionError: gone"
