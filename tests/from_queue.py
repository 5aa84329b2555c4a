"""A plugin for pytest: after the tests of its command line, those that `python -m tests` hands out, in one session.

A process says by `Done` that it has ended a part and gets the next one. Fixtures of the session live on between parts,
others end with theirs. Each test file is collected by the one process that runs it. What a part has cost the processor
includes the processes that ended in it; a server that lives on is a cost of the part in which it ends.
"""

from __future__ import annotations

import gc
import os
import resource
import time
from collections.abc import Generator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

VARIABLE = "TESTS_QUEUE"
"""The number of the descriptor on which parts come."""
MOST_REPORTED = 4_000
"""Letters of a failure."""


@dataclass(frozen=True)
class Done:
    seconds: float
    processor_s: float
    failures: int
    reports: list[str]
    """Of the tests that have failed: the name, and the end of what pytest says of it."""


FOLDERS: dict[Path, pytest.Collector | None] = {}


@pytest.hookimpl(wrapper=True)
def pytest_collect_directory(path: Path) -> Generator[None, pytest.Collector | None, pytest.Collector | None]:
    """The same one for each part: it has the fixtures of its conftest.py, which is read once."""
    return FOLDERS.setdefault(path, (yield))


def processor_s() -> float:
    """Of this process and those that have ended."""
    usages = [resource.getrusage(whose) for whose in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


class Failures:
    """Shows a failure when it happens: the session may go on for half an hour before pytest does."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self.reports: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._config.get_terminal_writer().line(f"\n{report.nodeid} {report.when}\n{report.longreprtext}")
            self.reports.append(f"{report.nodeid} {report.when}\n{report.longreprtext[-MOST_REPORTED:]}")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Failures(config), "failures")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool:
    descriptor = int(os.environ.pop(VARIABLE))
    os.set_inheritable(descriptor, False)
    queue, count, failed = Connection(descriptor), 0, 0
    began, cost = time.monotonic(), 0.0
    shown: Failures = session.config.pluginmanager.getplugin("failures")
    while True:
        # Modules stay: a collection that goes through those of all parts costs storms a tenth of their time.
        gc.freeze()
        # After the last one the session goes on: its own fixtures stay.
        for item, following in zip(session.items, [*session.items[1:], session], strict=False):
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        count += len(session.items)
        reports, shown.reports = shown.reports, []
        queue.send(Done(time.monotonic() - began, processor_s() - cost, session.testsfailed - failed, reports))
        failed = session.testsfailed
        part = queue.recv()
        if part is None:
            break
        began, cost = time.monotonic(), processor_s()
        session.config.get_terminal_writer().line("\n" + part.replace(" ", "\n"))
        session.perform_collect(part.split())
    session.testscollected = count
    return True
