"""Log lines of aiokafka that would alarm or flood."""

from __future__ import annotations

import logging

from aiokafka.consumer.group_coordinator import GroupCoordinator
from aiokafka.errors import CoordinatorNotAvailableError

from app.log_limit import limit_logs


def tune_logs() -> None:
    logging.getLogger(GroupCoordinator.__module__).addFilter(_FirstStart())  # before the rate limit
    limit_logs("aiokafka")
    # It prints a table for every assignment of every consumer.
    logging.getLogger("aiokafka.consumer.subscription_state").setLevel(logging.WARNING)


class _FirstStart(logging.Filter):
    """Explain aiokafka's error 15: at a first start the broker has not created its offsets topic yet."""

    def filter(self, record: logging.LogRecord) -> bool:
        if isinstance(record.args, tuple) and any(isinstance(arg, CoordinatorNotAvailableError) for arg in record.args):
            record.levelno, record.levelname = logging.WARNING, logging.getLevelName(logging.WARNING)
            record.msg = (
                "the broker has no group coordinator yet; retrying "
                "(on a first start the broker is still creating its offsets topic)"
            )
            record.args = ()
        return True
