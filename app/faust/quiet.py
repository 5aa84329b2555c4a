"""What Faust and aiokafka tell about themselves, at the log level `debug` instead of `info`.

Of some sixty lines of a start none is about answers. Warnings and errors stay what they are.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

import click
import faust
from faust.cli.worker import worker as command

LIBRARIES = ("aiokafka", "faust", "mode")


class QuietWorker(faust.Worker):
    """Faust's process, without its banner; its log is there as soon as `open_log` is called."""

    def open_log(self) -> None:
        self.spinner = None  # hides the cursor, and shows it again at an orderly end only
        self._setup_logging()
        self.override_logging = False

    def on_setup_root_logger(self, logger: logging.Logger, level: int) -> None:
        super().on_setup_root_logger(logger, level)
        if level > logging.DEBUG:
            for name in LIBRARIES:
                logging.getLogger(name).setLevel(max(level, logging.WARNING))


@contextmanager
def unheard(library: str) -> Iterator[None]:
    """Nothing of this library in the log, unless it is at debug."""
    logger = logging.getLogger(library)
    before = logger.level
    if not logger.isEnabledFor(logging.DEBUG):
        logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(before)


def end_told() -> None:
    """Why the process ends is in the log. Faust says it again, as `Crashed reason=...` with an empty traceback."""
    for name in ("faust", "mode"):
        logger = logging.getLogger(name)
        if not logger.isEnabledFor(logging.DEBUG):
            logger.setLevel(logging.CRITICAL + 1)


def hide_banner() -> None:
    command.on_worker_created = _nothing


def tell_wrong_use_in_one_line() -> None:
    """Of an option that Faust does not have, as all commands tell it."""
    click.UsageError.show = _show_in_one_line  # type: ignore[method-assign, assignment]


def _show_in_one_line(error: click.UsageError, file: IO[Any] | None = None) -> None:
    path = "parley worker" if error.ctx is None else error.ctx.command_path
    click.echo(f"Error: {' '.join(error.format_message().split())} (see `{path} --help`)", file=file, err=file is None)


def as_libraries(*services: type[Any]) -> None:
    """What Faust logs for these services, which are ours, is told as its own lines are."""
    for service in services:
        service.logger = logging.getLogger(f"faust.{service.__name__}")


def _nothing(*_: Any) -> None:
    return None
