"""Shared by the commands: start, errors, output."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
import warnings
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import click
from rich.console import Console
from rich.measure import Measurement

from app.kafka.errors import KafkaUnusableError
from app.process.process_end import ExitCode, end_at_signals, exit_at_signal
from app.settings import Settings, load_settings, unknown_settings
from app.settings.sources import SettingsError

if TYPE_CHECKING:
    from rich.table import Table

T = TypeVar("T")
_PIPE_WIDTH = 200
_CANCEL_AGAIN_S = 2.0
"""Longer than a cleanup takes while Kafka answers."""


class WrongUseError(click.ClickException):
    """The command line or a setting is wrong: exit code 2 and one line with the remedy."""

    exit_code = ExitCode.WRONG_USE


def settings_of_terminal() -> Settings:
    """Read the settings. An invalid one ends the command, an unknown one prints a warning."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            settings = load_settings()
        except SettingsError as error:
            raise WrongUseError(str(error)) from None
    for warning in caught:
        note(f"warning: {warning.message}")
    return settings


def warn_of_unknown_settings() -> None:
    """For commands that work with invalid settings: warn about each old or unknown name in one line."""
    for line in unknown_settings():
        note(f"warning: {line}")


@contextmanager
def plain_failures() -> Iterator[None]:
    """Report failures of Kafka in one line with their exit code, without its client's log; SIGTERM exits cleanly."""
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    before = signal.signal(signal.SIGTERM, exit_at_signal)
    try:
        yield
    except KafkaUnusableError as error:
        failure = click.ClickException(str(error))
        failure.exit_code = error.exit_code
        raise failure from None
    finally:
        signal.signal(signal.SIGTERM, before)


def run(work: Coroutine[Any, Any, T], *, only_reads: bool = False) -> T:
    """Run the command's coroutine. Ctrl-C and SIGTERM end it after its cleanup; at once if it only reads."""
    with plain_failures():
        try:
            if only_reads:
                end_at_signals()
                return asyncio.run(work)
            return asyncio.run(_until_terminated(work))
        except (KeyboardInterrupt, asyncio.CancelledError):
            sys.exit(0)


async def _until_terminated(work: Coroutine[Any, Any, T]) -> T:
    """Make SIGTERM and Ctrl-C cancel the coroutine instead of interrupting an arbitrary task; a second Ctrl-C ends it
    without its cleanup. It is cancelled until it ends: libraries drop a cancellation, as `asyncio.wait_for` does where
    what it waits for comes in the same moment (https://github.com/python/cpython/issues/86296).
    """
    task, loop = asyncio.current_task(), asyncio.get_running_loop()
    assert task is not None, "runs in a task"
    before = signal.getsignal(signal.SIGINT)

    def leave() -> None:
        task.cancel()
        loop.call_later(_CANCEL_AGAIN_S, leave)

    def interrupt(_number: int, _frame: object) -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        loop.call_soon_threadsafe(leave)

    loop.add_signal_handler(signal.SIGTERM, leave)
    if before is not signal.SIG_IGN:  # as a shell starts background jobs
        signal.signal(signal.SIGINT, interrupt)
    try:
        return await work
    finally:
        signal.signal(signal.SIGINT, before)


def note(text: str) -> None:
    """Print a status line to standard error."""
    click.echo(text, err=True)


def print_table(table: Table) -> None:
    """Print a table of rich; into a pipe as wide as its columns need. A narrow terminal breaks its lines: rich would
    leave columns out.
    """
    console = Console()
    if console.is_terminal:
        needed = Measurement.get(console, console.options.update(width=_PIPE_WIDTH), table)
        if console.width < needed.minimum:
            console.width = needed.maximum
    else:
        console.width = _PIPE_WIDTH
    console.print(table)
