"""The page of erasures on real servers; `make operations` executes all pages."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.operations.procedures import PROCEDURES
from tests.operations.run import execute


@pytest.mark.timeout(900)
async def test_a_page_does_what_it_promises(tmp_path: Path) -> None:
    outcome = await execute(PROCEDURES["erasure"], tmp_path / "erasure", lambda _: None, warm=6)
    assert outcome.is_right, outcome.line()
    assert outcome.callers.answered > 12
