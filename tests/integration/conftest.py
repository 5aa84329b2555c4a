"""Clients of HTTP are made in hundreds here, in the tests' own processes, and workers and gateways start warm."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from importlib import import_module

import pytest

from tests.warm_start import warm_starts

# Each would read all certificate authorities: 25 ms of a processor. OpenAI's client has an httpx of its own.
for library in ("httpx", "httpx2"):
    transports = import_module(f"{library}._transports.default")
    transports.create_ssl_context = cache(transports.create_ssl_context)  # type: ignore[attr-defined]


@pytest.fixture(scope="package", autouse=True)
def starts() -> Iterator[None]:
    with warm_starts():
        yield
