"""For the scripts of this folder, which run in the environments of their clients: run checks, print a line for each.

A line is JSON: the check's name, and its error or null.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
import sys
from collections.abc import Callable
from typing import Any

BASE_URL = f"{sys.argv[1]}/v1" if len(sys.argv) > 1 else ""
MODEL = "demo"
KEY = "any"
TENANT_KEY = "key-of-a-tenant-01"
USER_HEADER, CONVERSATION_HEADER = "X-OpenWebUI-User-Id", "X-Parley-Conversation"
SLOW = "slow"
"""A model that writes a few words a second, without an end."""
QUESTION = "Where is my order 48213?"
HOURS = "What are your opening hours?"
AGAIN = "What was my order number?"
"""A second turn, which only the first one answers."""
STATUS = {"status": "packed", "arrives": "Friday"}

_checks: list[tuple[str, Callable[[], Any]]] = []


def check(name: str) -> Callable[[Callable[[], Any]], Callable[[], Any]]:
    def register(function: Callable[[], Any]) -> Callable[[], Any]:
        _checks.append((name, function))
        return function

    return register


def run() -> None:
    with contextlib.closing(asyncio.Runner()) as runner:  # not begun for checks that are no coroutines
        for name, function in _checks:
            error = None
            try:
                found = function()
                if inspect.iscoroutine(found):
                    runner.run(found)
            except Exception as caught:  # noqa: BLE001 - it is reported
                error = f"{type(caught).__name__}: {caught}"
            print(json.dumps({"check": name, "error": error}), flush=True)


def expect_turns(texts: list[str]) -> None:
    """The answers to `QUESTION` by the tool, to `AGAIN`, and to `HOURS`."""
    expect([word in text for word, text in zip(("packed", "48213", "8 am"), texts, strict=True)] == [True] * 3, texts)


def expect(condition: object, seen: object) -> None:
    if not condition:
        raise AssertionError(f"unexpected: {seen!r}")
