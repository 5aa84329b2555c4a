"""Log lines of aiokafka that would alarm or flood."""

from __future__ import annotations

import logging
import time

from aiokafka.errors import CoordinatorNotAvailableError

from app.process.log_limit import limit_logs


def install() -> None:
    limit_logs("aiokafka", _Retried())
    logging.getLogger("asyncio").addFilter(_Unclosed())
    # It prints a table for every assignment of every consumer.
    logging.getLogger("aiokafka.consumer.subscription_state").setLevel(logging.WARNING)


class _Unclosed(logging.Filter):
    """A client that is cancelled while it asks for its first metadata forgets the connection, which closes itself then.
    That is no error: it happens at each rebalance that interrupts a take-over.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        return not record.getMessage().startswith("Unclosed AIOKafkaConnection")


_FIRST_START_S = 10.0


class _Retried(logging.Filter):
    """What aiokafka tries again is a warning: a broker that is away, or a group without a coordinator yet. What it does
    not try again, it raises, or it logs it with a traceback.
    """

    def __init__(self) -> None:
        super().__init__()
        self._began = time.monotonic()

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno != logging.ERROR or record.exc_info:
            return True
        record.levelno, record.levelname = logging.WARNING, logging.getLevelName(logging.WARNING)
        if isinstance(record.args, tuple) and any(isinstance(arg, CoordinatorNotAvailableError) for arg in record.args):
            if time.monotonic() - self._began < _FIRST_START_S:
                return False
            record.msg = (
                "the broker has no group coordinator yet; retrying "
                "(on a first start the broker is still creating its offsets topic)"
            )
            record.args = ()
        return True
