from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.warm_start import warm_starts


@pytest.fixture(scope="package", autouse=True)
def starts() -> Iterator[None]:
    """Of workers in the short tests; those of `make faults` start cold."""
    with warm_starts():
        yield
