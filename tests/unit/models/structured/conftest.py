from __future__ import annotations

from collections.abc import Iterator

import pytest

from models.structured import ConstraintCompiler
from tests.unit.models.structured.walks import constraints


@pytest.fixture(scope="module")
def kept() -> Iterator[ConstraintCompiler]:
    """One compiler for all tests of a module."""
    made = constraints()
    yield made
    made.stop()
